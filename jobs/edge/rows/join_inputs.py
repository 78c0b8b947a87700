"""The joins of a query in memory, by arrays, with the rows of all sides.

rows of the sources ─► scans ─► changes of the bundle ─► joins ─► changes of joined rows
                                                           └── an arrangement for each side
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from jobs.core.join.row_joins import Changes, RowJoins, WeightedRow
from jobs.core.join.stages import JoinStage, Side, list_sides
from jobs.core.plan.tree import Column, Plan
from jobs.edge.rows.arranged_rows import Arrangement, KeyedRows, Run
from jobs.edge.rows.joined_rows import JoinedRows, JoinOperator, gather
from jobs.edge.rows.packed_rows import canonical
from schemas.limits import JOIN_BATCH_ROWS
from schemas.types.arrow_values import from_arrow, rows_to_arrow


class JoinInputs(RowJoins):
    """The scans and the joins of a query; the rows of all sides are kept."""

    def __init__(
        self, plan: Plan, sources: Mapping[str, Plan], rows_max: int = JOIN_BATCH_ROWS
    ) -> None:
        super().__init__(plan, sources)
        self.rows_max = rows_max
        self.sides = {side.name: Arrangement() for side in list_sides([self.tree])}

    def advance(self, stage: JoinStage, changes: Changes) -> Iterator[list[WeightedRow]]:
        """Yield the changes of one join in batches, each row once, and keep those of its sides."""
        for batch in gather(self._join(stage, changes), self.rows_max):
            each, _ = KeyedRows([], batch.columns, batch.weights).consolidate()
            yield list_rows(JoinedRows(each.columns, each.weights), stage.join.columns)

    def _join(self, stage: JoinStage, changes: Changes) -> Iterator[JoinedRows]:
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
