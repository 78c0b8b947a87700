"""Consolidate the signed rows of one range of a partition into weighted rows.

    +a  +b  -a  -z  +a        (a range, in offset order; z was added in an earlier bundle)
     0   1   2   3   4         positions
          │
          ├─ consolidate ─►              a  weight 1      b  weight 1      z  weight -1
          │
          └─ consolidate_with_heads ─►   a  first plus 0, weight 1     the sum of all changes from
                                         b  first plus 1, weight 1     the row's first accumulate on
                                         z  head at 3, weight -1       a retraction before that

Equal rows are added up because all later steps are linear in the weights. A row of weight 0 is
kept only if it matters that it came: it keeps its group alive under a TTL, and its message is
refused if an expression fails on it.

With `early_retractions: drop` there is an exception: a group without accumulator drops the
retractions at the head of the bundle. The fold needs positions for this, so first pluses and heads
are kept beside the weights. An accumulate is a change +I or +U. A row of weight 0 is kept too,
because its first plus may create the group.

A position is (ordinal of the range, running number in it) in one integer. A head has the bitwise
complement of its position, so one column tells heads from first pluses.

`consolidate` works on arrays: a map task has its rows in Arrow columns, a replay in lists.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jobs.core.plan.tree import Column, Named, Plan
from jobs.core.plan.walk import plan_can_fail
from jobs.core.values.change import Row

RUNNING_BITS = 40
Integers = np.ndarray[Any, np.dtype[np.int64]]
Booleans = np.ndarray[Any, np.dtype[np.bool_]]


class WeightedRows(NamedTuple):
    """The weighted rows of a range, as parallel arrays."""

    indexes: Integers  # of the rows among the signed rows
    positions: Integers  # complemented for heads
    weights: Integers


def consolidate(
    ordinal: int,
    numbers: Integers,
    signs: Integers,
    at: Integers | None = None,
    *,
    keep_zeros: bool = False,
) -> WeightedRows:
    """Return the weighted rows of a range, in the order in which they first occur.

    Equal rows have equal `numbers`, which count from 0 without large gaps. If the rows are only a
    part of the range, `at` has their running numbers in it.
    """
    firsts = _find_firsts(numbers)
    sums = add_up(numbers, signs, numbers.max(initial=-1) + 1)
    if not keep_zeros:
        firsts = firsts[sums[numbers[firsts]] != 0]
    indexes = np.sort(firsts)
    positions = indexes if at is None else at[indexes]
    start = ordinal << RUNNING_BITS
    return WeightedRows(indexes, start + positions, sums[numbers[indexes]])


def consolidate_with_heads(
    ordinal: int,
    numbers: Integers,
    signs: Integers,
    groups: Integers | None = None,
    at: Integers | None = None,
) -> WeightedRows:
    """Return the weighted rows of a range: first pluses in order, then heads.

    Equal rows have equal `numbers`, and rows of one group equal `groups`; both count from 0 without
    large gaps. If `groups` are known and there is no WHERE, a row of weight 0 after an earlier plus
    of its group has no effect and is dropped. If the rows are only a part of the range, `at` has
    their running numbers in it.
    """
    never = len(numbers)
    first_plus = np.full(numbers.max(initial=-1) + 1, never)
    pluses = np.flatnonzero(signs > 0)
    first_plus[numbers[pluses[::-1]]] = pluses[::-1]  # of equal numbers the last assignment wins
    is_head = np.arange(never) < first_plus[numbers]
    heads = np.flatnonzero(is_head)
    sums = add_up(numbers, np.where(is_head, 0, signs), len(first_plus))
    indexes = np.sort(first_plus[first_plus < never])
    weights = sums[numbers[indexes]]
    if groups is not None:
        kept = weights != 0
        kept[_find_firsts(groups[indexes])] = True
        indexes, weights = indexes[kept], weights[kept]
    start = ordinal << RUNNING_BITS
    pluses, before = (indexes, heads) if at is None else (at[indexes], at[heads])
    return WeightedRows(
        np.concatenate((indexes, heads)),
        np.concatenate((start + pluses, ~(start + before))),
        np.concatenate((weights, signs[heads])),
    )


def add_up(numbers: Integers, weights: Integers, count: int) -> Integers:
    """Return the sum of the weights of each of `count` numbers."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, numbers, weights)
    return sums


def _find_firsts(numbers: Integers) -> Integers:
    """Return the index of the first of each number, in no order."""
    firsts = np.full(numbers.max(initial=-1) + 1, -1)
    firsts[numbers[::-1]] = np.arange(len(numbers))[::-1]
    return firsts[firsts >= 0]


class Consolidation:
    """Collects the signed rows of one range, message by message."""

    __slots__ = ("_ordinal", "_rows", "_signs")

    def __init__(self, ordinal: int) -> None:
        self._ordinal = ordinal
        self._rows: list[Row] = []
        self._signs: list[int] = []

    def add(self, changes: Iterable[tuple[int, Row]]) -> None:
        """Add the changes of one message, in order."""
        for sign, row in changes:
            self._signs.append(sign)
            self._rows.append(row)

    @property
    def changes(self) -> int:
        """The number of signed rows so far."""
        return len(self._rows)

    def consolidate(
        self,
        group_of: Callable[[Row], Hashable] | None = None,
        *,
        with_heads: bool = False,
        keep_zeros: bool = False,
    ) -> tuple[list[Row], list[int], list[int]]:
        """Return rows, positions and weights, as parallel lists."""
        numbers, signs = _number(self._rows), np.array(self._signs, np.int64)
        if with_heads:
            groups = None if group_of is None else _number(list(map(group_of, self._rows)))
            weighted = consolidate_with_heads(self._ordinal, numbers, signs, groups)
        else:
            weighted = consolidate(self._ordinal, numbers, signs, keep_zeros=keep_zeros)
        indexes, positions, weights = weighted
        return [self._rows[index] for index in indexes], positions.tolist(), weights.tolist()


def _number(values: Sequence[Hashable]) -> Integers:
    """Number the distinct values from 0."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)


def group_indexes(plan: Plan) -> tuple[int, ...] | None:
    """Return the indexes of the used columns that are a row's group.

    Return None if the group needs an expression, or if WHERE or an error can drop a row: then each
    row has to be evaluated."""
    if plan.where is not None or plan_can_fail(plan):
        return None
    return _column_indexes(plan, plan.group)


def plain_indexes(plan: Plan) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the indexes of the used columns that are a row's group and its arguments.

    Return None unless a row is folded once and unchanged, that is without expressions, windows,
    grouping sets and last images."""
    if plan.copies_per_row > 1 or plan.window is not None or plan.primary_key:
        return None
    group, arguments = group_indexes(plan), _column_indexes(plan, plan.arguments)
    return None if group is None or arguments is None else (group, arguments)


def _column_indexes(plan: Plan, named: Sequence[Named]) -> tuple[int, ...] | None:
    """Return the indexes of these among the used columns; None if one is no plain column."""
    names = [column.name for column in plan.used]
    expressions = [each.expression for each in named]
    if not all(isinstance(expression, Column) for expression in expressions):
        return None
    return tuple(names.index(column.name) for column in expressions if isinstance(column, Column))
