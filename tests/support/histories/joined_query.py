"""A query with joins in memory: changes of several tables in, the changelog of its result out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jobs.core.fold.fold import FoldResult
from jobs.core.fold.in_memory import MemoryFold
from jobs.core.fold.state import Key
from jobs.core.plan.tree import Column, Plan
from jobs.core.rows.consolidate import Consolidation
from jobs.core.rows.projection import row_projection
from jobs.core.sql.select import parse_joins
from jobs.core.values.change import Row
from jobs.edge.rows.join_inputs import JoinInputs
from schemas.types.sql_types import SqlType
from tests.support.histories.folded_changelog import fold_changelog

Change = tuple[str, int, Row]  # table, weight, row


class JoinedQuery:
    """The joins and the fold of one query."""

    def __init__(self, sql: str, tables: Mapping[str, Mapping[str, SqlType]]) -> None:
        self.plan = parse_joins(sql, tables)
        self.table: dict[Key, Row] = {}
        self.joined: dict[Row, int] = {}  # all joined rows, for tests
        self.sources = {}  # the plan for decoding each table
        for name, types in tables.items():
            columns = tuple(Column(*each) for each in types.items())
            self.sources[name] = Plan(columns, columns, None, (), (), (), ())
        self.inputs = JoinInputs(self.plan, self.sources)
        self.largest = 0  # batch of joined rows
        self._fold = MemoryFold(self.plan, row_projection(self.plan))

    def run_epoch(self, changes: Iterable[Change], rows_max: int = 1_000) -> FoldResult:
        """Join and fold the changes of an epoch."""
        for table, weight, row in changes:
            self.inputs.add(table, row, weight)
        consolidation = Consolidation(0)
        self.inputs.rows_max = rows_max
        for batch in self.inputs.join():
            self.largest = max(self.largest, len(batch))
            consolidation.add((weight, row) for row, weight in batch)
            for row, weight in batch:
                self.joined[row] = self.joined.get(row, 0) + weight
        self.joined = {row: weight for row, weight in self.joined.items() if weight}
        folded = self._fold.fold([consolidation])
        fold_changelog(self.table, folded.changelog)
        return folded
