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
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import compress
from operator import itemgetter

from jobs.core.change import Row
from jobs.core.expressions import plan_fails
from jobs.core.plan import Column, Plan

RUNNING_BITS = 40


class Consolidation:
    """The weighted rows of one range, built message by message."""

    __slots__ = ("_heads", "_next", "_numbers", "_positions", "_weights", "first")

    def __init__(self, ordinal: int) -> None:
        self.first = ordinal << RUNNING_BITS
        self._next = self.first
        # Distinct rows by number, in the order of their first pluses; lists beside it because
        # this is the innermost loop of a backfill, and an object a row would cost as much again.
        self._numbers: dict[Row, int] = {}
        self._positions: list[int] = []
        self._weights: list[int] = []
        self._heads: list[tuple[Row, int]] = []

    def add(self, changes: Iterable[tuple[int, Row]]) -> None:
        """Take the changes of one message, in their order."""
        position = self._next
        numbers, weights = self._numbers, self._weights
        for weight, row in changes:
            number = numbers.get(row)
            if number is not None:
                weights[number] += weight
            elif weight > 0:
                numbers[row] = len(weights)
                weights.append(weight)
                self._positions.append(position)
            else:
                self._heads.append((row, position))
            position += 1
        self._next = position

    @property
    def changes(self) -> int:
        """How many signed rows have been taken."""
        return self._next - self.first

    def weighted(
        self, group_of: Callable[[Row], Hashable] | None = None
    ) -> tuple[list[Row], list[int], list[int]]:
        """Rows, positions (complemented for heads) and weights, side by side.

        Where the group of a row is known here and no WHERE stands between, a row of weight 0
        says nothing behind an earlier plus of its group, and stays behind.
        """
        rows, positions, weights = list(self._numbers), self._positions[:], self._weights[:]
        if group_of is not None:
            told = self._telling(rows, group_of)
            rows = list(compress(rows, told))
            positions = list(compress(positions, told))
            weights = list(compress(weights, told))
        for row, position in self._heads:
            rows.append(row)
            positions.append(~position)
            weights.append(-1)
        return rows, positions, weights

    def _telling(self, rows: list[Row], group_of: Callable[[Row], Hashable]) -> list[bool]:
        """Which rows say something: those that weigh, and the first plus of each group."""
        alive: set[Hashable] = set()
        told = []
        for row, weight in zip(rows, self._weights, strict=True):
            group = group_of(row)
            tells = weight != 0 or group not in alive
            if tells:
                alive.add(group)
            told.append(tells)
        return told


def plain_group(plan: Plan) -> Callable[[Row], Hashable] | None:
    """How to read a row's group off the row itself; None where that takes an expression, where a
    WHERE decides which rows count, or where a row may fail: then all have to be looked at."""
    if plan.where is not None or plan_fails(plan):
        return None
    names = [column.name for column in plan.used]
    places = []
    for named in plan.group:
        if not isinstance(named.expression, Column):
            return None
        places.append(names.index(named.expression.name))
    return itemgetter(*places) if places else _one_group


def _one_group(_row: Row) -> Hashable:
    return None
