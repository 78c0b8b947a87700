"""Consolidate: the signed rows of one range of a partition become weighted rows.

    +a  +b  -a  -z  +a        (a range, in offset order; z was added in an earlier bundle)
     0   1   2   3   4         positions
          │
          ▼
    a  first plus 0, weight 1      everything from its own first accumulate on, added up
    b  first plus 1, weight 1
    z  head at 3,   weight -1      a retraction before the row's own first accumulate

Equal rows add up because all that follows is linear in the weights, but for one rule: a group
without accumulator drops the retractions at the head of the bundle. The fold needs positions for
that, so first pluses and heads travel beside the weights; a row whose weight is 0 travels too,
for its first plus may be the one that brings the group to life.

A position is (ordinal of the range, running number in it) in one integer; a head carries its
bitwise complement, so one column says both which of the two a row is and where it stands.

`consolidated` is the rule, over columns: a map task has its rows in Arrow's, a replay in lists.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from jobs.core.plan.tree import Column, Named, Plan
from jobs.core.plan.walk import plan_fails
from jobs.core.values.change import Row

RUNNING_BITS = 40
Integers = np.ndarray[Any, np.dtype[np.int64]]


class Weighted(NamedTuple):
    """What a range ships, side by side."""

    places: Integers  # of the rows, among the signed ones
    positions: Integers  # complemented for heads
    weights: Integers


def consolidated(
    ordinal: int,
    numbers: Integers,
    signs: Integers,
    groups: Integers | None = None,
    at: Integers | None = None,
) -> Weighted:
    """The weighted rows of a range, in the order of their first pluses, the heads behind them.

    `numbers` are equal where rows are, `groups` where their groups are; both count from 0 without
    large gaps. Where the group of a row is known and no WHERE stands between, a row of weight 0
    says nothing behind an earlier plus of its group, and stays behind. Where these are not all rows
    of the range, `at` says at which of its places they stand.
    """
    never = len(numbers)
    first_plus = np.full(numbers.max(initial=-1) + 1, never)
    pluses = np.flatnonzero(signs > 0)
    np.minimum.at(first_plus, numbers[pluses], pluses)
    is_head = np.arange(never) < first_plus[numbers]
    heads = np.flatnonzero(is_head)
    sums = np.bincount(numbers, np.where(is_head, 0, signs), len(first_plus)).astype(np.int64)
    places = np.sort(first_plus[first_plus < never])
    weights = sums[numbers[places]]
    if groups is not None:
        told = weights != 0
        told[np.unique(groups[places], return_index=True)[1]] = True
        places, weights = places[told], weights[told]
    start = ordinal << RUNNING_BITS
    pluses, before = (places, heads) if at is None else (at[places], at[heads])
    return Weighted(
        np.concatenate((places, heads)),
        np.concatenate((start + pluses, ~(start + before))),
        np.concatenate((weights, signs[heads])),
    )


class Consolidation:
    """The signed rows of one range, taken message by message."""

    __slots__ = ("_ordinal", "_rows", "_signs")

    def __init__(self, ordinal: int) -> None:
        self._ordinal = ordinal
        self._rows: list[Row] = []
        self._signs: list[int] = []

    def add(self, changes: Iterable[tuple[int, Row]]) -> None:
        """Take the changes of one message, in their order."""
        for sign, row in changes:
            self._signs.append(sign)
            self._rows.append(row)

    @property
    def changes(self) -> int:
        """How many signed rows have been taken."""
        return len(self._rows)

    def weighted(
        self, group_of: Callable[[Row], Hashable] | None = None
    ) -> tuple[list[Row], list[int], list[int]]:
        """Rows, positions and weights, side by side."""
        groups = None if group_of is None else _numbered(list(map(group_of, self._rows)))
        signs = np.array(self._signs, np.int64)
        places, positions, weights = consolidated(
            self._ordinal, _numbered(self._rows), signs, groups
        )
        return [self._rows[place] for place in places], positions.tolist(), weights.tolist()


def _numbered(values: Sequence[Hashable]) -> Integers:
    numbers: dict[Hashable, int] = {}
    found = [numbers.setdefault(value, len(numbers)) for value in values]
    return np.array(found, np.int64)


def group_places(plan: Plan) -> tuple[int, ...] | None:
    """Which of the used columns make a row's group; None where that takes an expression, where a
    WHERE decides which rows count, or where a row may fail: then all have to be looked at."""
    if plan.where is not None or plan_fails(plan):
        return None
    return _column_places(plan, plan.group)


def plain_places(plan: Plan) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Which of the used columns are a row's group and which its arguments, where a row is folded
    once and just as it is read: no expression, no window, no grouping sets, no image to look up."""
    if plan.copies > 1 or plan.window is not None or plan.primary_key:
        return None
    group, arguments = group_places(plan), _column_places(plan, plan.arguments)
    return None if group is None or arguments is None else (group, arguments)


def _column_places(plan: Plan, named: Sequence[Named]) -> tuple[int, ...] | None:
    """Where these stand among the used columns; None where one is more than a column."""
    names = [column.name for column in plan.used]
    expressions = [each.expression for each in named]
    if not all(isinstance(expression, Column) for expression in expressions):
        return None
    return tuple(names.index(column.name) for column in expressions if isinstance(column, Column))


def plain_group(plan: Plan) -> Callable[[Row], Hashable] | None:
    """How to read a row's group off the row itself, where `group_places` says that one can."""
    places = group_places(plan)
    if places is None:
        return None
    return itemgetter(*places) if places else _one_group


def _one_group(_row: Row) -> Hashable:
    return None
