"""One bucket of an arrangement: the hot state of a side, which a join reads and folds.

rows, count ◄── hot state at base
add ──► changes ──► fold ──► upserts, for the table and the next epoch's hot state
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from jobs.core.fold.fold import FoldContext
from jobs.core.fold.program import Program
from jobs.core.fold.sessions import fold_bundle
from jobs.core.fold.state import Upserts
from jobs.core.join.arrangement import WeightedRow, Weights
from jobs.core.values.change import Row
from jobs.edge.state.hot_records import Snapshot

_ROWS = 0  # the argument with the rows


class StoredArrangement:
    """Implements the core's Arrangement by a snapshot; each key is changed once."""

    def __init__(self, view: Snapshot, program: Program, context: FoldContext) -> None:
        self._view = view
        self._program = program
        self._context = context
        self._keeps_rows = bool(program.plan.arguments)
        self._counts: dict[Row, int] = {}
        self._changes: list[tuple[Row, Row, int]] = []  # key, row, weight

    def read_together(self, keys: Collection[Row]) -> None:
        """Read what `rows` and `count` return of these keys, as far as it is small."""
        if self._keeps_rows:
            self._view.read_together(_ROWS, keys)
        groups = zip(keys, self._view.groups(list(keys)), strict=True)
        self._counts = {key: 0 if group is None else group.cells[0] for key, group in groups}

    def rows(self, key: Row) -> Iterable[WeightedRow]:
        if self._keeps_rows:
            rows: Iterable[Any] = self._view.iterate(_ROWS, key)
            return rows
        count = self.count(key)
        return [((), count)] if count else []

    def count(self, key: Row) -> int:
        return self._counts[key]

    def add(self, key: Row, changes: Weights) -> None:
        self._changes += ((key, row, weight) for row, weight in changes.items() if weight)

    def fold(self) -> Upserts:
        """Return the changed state."""
        if not self._changes:
            return Upserts()
        keys, rows, weights = zip(*self._changes, strict=True)
        arguments = [rows] if self._keeps_rows else []
        deltas = self._program.gather(keys, *arguments, [0] * len(keys), weights)
        return fold_bundle(self._program, self._view, deltas, self._context).upserts
