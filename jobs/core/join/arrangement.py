"""An arrangement: the rows of one side of a join, as a multiset by join key.

    key (7,)   {(7, 'a'): 2, (7, 'b'): -1}   count 1

A weight is below zero if a retraction came before its row. A key is there as long as a weight of it
is not zero, so the order of changes means nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from jobs.core.values.change import Row

WeightedRow = tuple[Row, int]
Weights = Mapping[Row, int]
NO_ROWS: Weights = {}


class Arrangement(Protocol):
    """What a join reads and writes of one of its sides."""

    def rows(self, key: Row) -> Iterable[WeightedRow]:
        """Return the rows with this key, which may be many; no weight is zero."""

    def count(self, key: Row) -> int:
        """Return the sum of their weights."""

    def add(self, key: Row, changes: Weights) -> None:
        """Add changes of rows with this key."""


class MemoryArrangement:
    """An arrangement in memory."""

    __slots__ = ("_counts", "_rows")

    def __init__(self) -> None:
        self._rows: dict[Row, dict[Row, int]] = {}
        self._counts: dict[Row, int] = {}

    def rows(self, key: Row) -> Iterable[WeightedRow]:
        return self._rows.get(key, NO_ROWS).items()

    def count(self, key: Row) -> int:
        return self._counts.get(key, 0)

    def add(self, key: Row, changes: Weights) -> None:
        rows = self._rows.setdefault(key, {})
        add_weights(rows, changes)
        self._counts[key] = self.count(key) + sum(changes.values())
        if not rows:
            del self._rows[key], self._counts[key]


def add_weights(rows: dict[Row, int], changes: Weights) -> None:
    """Add weights to rows; a row of weight zero leaves."""
    for row, weight in changes.items():
        if total := rows.get(row, 0) + weight:
            rows[row] = total
        else:
            rows.pop(row, None)
