"""The rows of several sources on their way to one query, joined row by row.

    row of a source ─► scans of the source: WHERE, key, columns ─┬─► changes of the sides
                                                                 └─► RowFailed: why it is refused
    changes ─► first join ─► ... ─► last join ─► changes of joined rows

A joined row on which a key or a condition fails counts for nothing, as in a running job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

from jobs.core.join.pairing import join_rows
from jobs.core.join.stages import JoinStage, Side, sides_of_scans, trees_of
from jobs.core.plan.relations import list_scans
from jobs.core.plan.tree import Plan
from jobs.core.rows.projection import Projection, RowFailed, row_projection
from jobs.core.values.change import Row

WeightedRow = tuple[Row, int]
Changes = Mapping[str, Sequence[WeightedRow]]  # of each side by its name: key and columns


class RowJoins:
    """The scans and the joins of a query over all rows of its sources, which are joined once.

    `sources` has the plan for decoding each source."""

    def __init__(self, plan: Plan, sources: Mapping[str, Plan]) -> None:
        (self.tree,) = trees_of({"": plan})
        self._scans: list[tuple[str, Side, Projection]] = []
        for scan, side in zip(
            list_scans(self.tree.relation), sides_of_scans(self.tree), strict=True
        ):
            read = replace(side.inputs, used=sources[scan.source].used)
            self._scans.append((scan.source, side, row_projection(read)))
        self._changes: dict[str, list[WeightedRow]] = {}

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
        """Yield the changes of joined rows that follow from the changes since the last call."""
        changes, self._changes = self._changes, {}
        for stage, after in pairwise(self.tree.stages):
            project = row_projection(replace(after.left.inputs, used=stage.join.columns))
            of_next = changes.setdefault(after.left.name, [])
            for batch in self.advance(stage, changes):
                for row, weight in batch:
                    with suppress(RowFailed):
                        projected = project(row)
                        assert projected is not None, "a side of joined rows has no WHERE"
                        of_next.append((projected[0] + projected[1], weight))
        yield from self.advance(self.tree.stages[-1], changes)

    def advance(self, stage: JoinStage, changes: Changes) -> Iterator[list[WeightedRow]]:
        """Yield the changes of one join, in batches."""
        join = stage.join
        left, right = (_by_key(side, changes) for side in (stage.left, stage.right))
        chosen = [join.inputs.index(column) for column in join.columns]
        for key in dict.fromkeys((*left, *right)):
            pair = left.get(key, {}), right.get(key, {})
            matching = (pair,) if None not in key else ((pair[0], {}), ({}, pair[1]))
            for sides in matching:  # a key with NULL never matches
                joined = [each for each in join_rows(join, *sides) if each[1]]
                yield [(tuple([row[index] for index in chosen]), weight) for row, weight in joined]


def _by_key(side: Side, changes: Changes) -> dict[Row, dict[Row, int]]:
    """Return the weights of the rows of a side by its join keys."""
    found: dict[Row, dict[Row, int]] = {}
    width = len(side.inputs.group)
    for row, weight in changes.get(side.name, ()):
        of_key = found.setdefault(row[:width], {})
        of_key[row[width:]] = of_key.get(row[width:], 0) + weight
    return found
