"""The rows of several sources on their way to one query, in memory.

    row of a source ─► scans of the source: WHERE, key, columns ─┬─► changes of the bundle
                                                                 └─► RowFailed: why it is refused
    end of the bundle ─► joins ─► changes of joined rows

A joined row on which a key or a condition fails counts for nothing, as in a running job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import numpy as np

from jobs.core.join.stages import JoinStage, Side, list_sides, sides_of_scans, trees_of
from jobs.core.plan.relations import list_scans
from jobs.core.plan.tree import Column, Plan
from jobs.core.rows.projection import Projection, RowFailed, row_projection
from jobs.core.values.change import Row
from jobs.edge.rows.arranged_rows import Arrangement, KeyedRows, Run
from jobs.edge.rows.joined_rows import JoinedRows, JoinOperator, gather
from jobs.edge.rows.packed_rows import canonical
from schemas.limits import JOIN_BATCH_ROWS
from schemas.types.arrow_values import from_arrow, rows_to_arrow

WeightedRow = tuple[Row, int]


class JoinInputs:
    """The scans and the joins of a query; `sources` has the plan for decoding each source."""

    def __init__(
        self, plan: Plan, sources: Mapping[str, Plan], rows_max: int = JOIN_BATCH_ROWS
    ) -> None:
        (self._tree,) = trees_of({"": plan})
        self.rows_max = rows_max
        self.sides = {side.name: Arrangement() for side in list_sides([self._tree])}
        self._scans: list[tuple[str, Side, Projection]] = []
        for scan, side in zip(
            list_scans(self._tree.relation), sides_of_scans(self._tree), strict=True
        ):
            read = replace(side.inputs, used=sources[scan.source].used)
            self._scans.append((scan.source, side, row_projection(read)))
        self._changes: dict[str, list[WeightedRow]] = {}  # of each side: key and columns

    def add(self, source: str, row: Row, weight: int) -> bool:
        """Take a change of a source; return whether a scan has the row."""
        scanned = False
        for name, side, project in self._scans:
            if name == source and (projected := project(row)) is not None:
                key, columns = projected
                self._changes.setdefault(side.name, []).append((key + columns, weight))
                scanned = True
        return scanned

    def failure(self, source: str, row: Row) -> str | None:
        """Return the reason if an expression of a scan fails on a row."""
        try:
            for name, _, project in self._scans:
                if name == source:
                    project(row)
        except RowFailed as failed:
            return str(failed)
        return None

    def join(self) -> Iterator[list[WeightedRow]]:
        """Yield the changes of joined rows that follow from the changes since the last call.

        A batch has each row once."""
        changes, self._changes = self._changes, {}
        for stage, after in pairwise(self._tree.stages):
            project = row_projection(replace(after.left.inputs, used=stage.join.columns))
            of_next = changes.setdefault(after.left.name, [])
            for row, weight in self._join(stage, changes):
                with suppress(RowFailed):
                    projected = project(row)
                    assert projected is not None, "a side of joined rows has no WHERE"
                    of_next.append((projected[0] + projected[1], weight))
        last = self._tree.stages[-1]
        for batch in gather(self._advance(last, changes), self.rows_max):
            each, _ = KeyedRows([], batch.columns, batch.weights).consolidate()
            yield list_rows(JoinedRows(each.columns, each.weights), last.join.columns)

    def _join(
        self, stage: JoinStage, changes: Mapping[str, Sequence[WeightedRow]]
    ) -> Iterator[WeightedRow]:
        for piece in self._advance(stage, changes):
            yield from list_rows(piece, stage.join.columns)

    def _advance(
        self, stage: JoinStage, changes: Mapping[str, Sequence[WeightedRow]]
    ) -> Iterator[JoinedRows]:
        """Yield the changes of a join, and keep those of its sides."""
        operator = JoinOperator(stage.join, lambda _reason, _weight: None, self.rows_max)
        sides = stage.left, stage.right
        left, right = (to_keyed_rows(side, changes.get(side.name, ())) for side in sides)
        (left, left_without), (right, right_without) = left.split(), right.split()
        yield from operator.advance_without_key(left_without, right_without)
        runs = Run.of(left), Run.of(right)
        yield from operator.advance(*runs, *(self.sides[side.name] for side in sides))
        for side, run in zip(sides, runs, strict=True):
            self.sides[side.name] = self.sides[side.name].add(run)


def to_keyed_rows(side: Side, changes: Iterable[WeightedRow]) -> KeyedRows:
    """Return rows of key and columns as the join gets them."""
    rows = list(changes)
    named = (*side.inputs.group, *side.inputs.arguments)
    arrays = rows_to_arrow([row for row, _ in rows], [each.type for each in named])
    keys = len(side.inputs.group)
    weights = np.array([weight for _, weight in rows], np.int64)
    columns = list(map(canonical, arrays))
    consolidated, _ = KeyedRows(columns[:keys], columns[keys:], weights).consolidate()
    return consolidated


def list_rows(rows: JoinedRows, columns: Sequence[Column]) -> list[WeightedRow]:
    """Return rows of arrays as tuples."""
    values = [from_arrow(a, c.type) for a, c in zip(rows.columns, columns, strict=True)]
    found = zip(*values, strict=True) if values else [()] * len(rows.weights)
    return list(zip(found, rows.weights.tolist(), strict=True))
