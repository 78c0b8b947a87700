"""The rows of several sources on their way to one query, in memory.

    row of a source ─► scans of the source: WHERE, key, columns ─┬─► changes of the bundle
                                                                 └─► RowFailed: why it is refused
    end of the bundle ─► joins ─► changes of joined rows

A joined row on which a key or a condition fails counts for nothing, as in a running job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from jobs.core.join.arrangement import Arrangement, MemoryArrangement, WeightedRow
from jobs.core.join.stages import sides_of_scans, trees_of
from jobs.core.join.tree import Batch, JoinedRows
from jobs.core.plan.relations import list_scans
from jobs.core.plan.tree import Plan
from jobs.core.rows.projection import RowFailed, row_projection
from jobs.core.values.change import Row
from schemas.limits import JOIN_BATCH_ROWS


class JoinInputs:
    """The scans and the joins of a query; `sources` has the plan for decoding each source."""

    def __init__(
        self,
        plan: Plan,
        sources: Mapping[str, Plan],
        arrange: Callable[[], Arrangement] = MemoryArrangement,
    ) -> None:
        (tree,) = trees_of({"": plan})
        self._rows = JoinedRows(tree.relation, arrange, lambda _failed, _weight: None)
        self._scans = [
            (scan, row_projection(replace(side.inputs, used=sources[scan.source].used)))
            for scan, side in zip(list_scans(tree.relation), sides_of_scans(tree), strict=True)
        ]
        self._changes: dict[str, list[WeightedRow]] = {}

    def add(self, source: str, row: Row, weight: int) -> bool:
        """Take a change of a source; return whether a scan has the row."""
        scanned = False
        for scan, project in self._scans:
            if scan.source == source and (projected := project(row)) is not None:
                self._changes.setdefault(scan.alias, []).append((projected[1], weight))
                scanned = True
        return scanned

    def failure(self, source: str, row: Row) -> str | None:
        """Return the reason if an expression of a scan fails on a row."""
        try:
            for scan, project in self._scans:
                if scan.source == source:
                    project(row)
        except RowFailed as failed:
            return str(failed)
        return None

    def join(self, rows_max: int = JOIN_BATCH_ROWS) -> Iterator[Batch]:
        """Yield the changes of joined rows that follow from the changes since the last call."""
        changes, self._changes = self._changes, {}
        return self._rows.advance(changes, rows_max)
