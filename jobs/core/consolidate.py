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

from collections.abc import Iterable

from jobs.core.change import Row

RUNNING_BITS = 40


class Consolidation:
    """The weighted rows of one range, built message by message."""

    __slots__ = ("_heads", "_next", "_rows", "first")

    def __init__(self, ordinal: int) -> None:
        self.first = ordinal << RUNNING_BITS
        self._next = self.first
        self._rows: dict[Row, list[int]] = {}
        self._heads: list[tuple[Row, int]] = []

    def add(self, changes: Iterable[tuple[int, Row]]) -> None:
        """Take the changes of one message, in their order."""
        position = self._next
        rows = self._rows
        for weight, row in changes:
            entry = rows.get(row)
            if entry is not None:
                entry[1] += weight
            elif weight > 0:
                rows[row] = [position, weight]
            else:
                self._heads.append((row, position))
            position += 1
        self._next = position

    @property
    def changes(self) -> int:
        """How many signed rows have been taken."""
        return self._next - self.first

    def weighted(self) -> tuple[list[Row], list[int], list[int]]:
        """Rows, positions (complemented for heads) and weights, side by side."""
        rows = list(self._rows)
        positions = [entry[0] for entry in self._rows.values()]
        weights = [entry[1] for entry in self._rows.values()]
        for row, position in self._heads:
            rows.append(row)
            positions.append(~position)
            weights.append(-1)
        return rows, positions, weights
