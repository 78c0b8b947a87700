"""A job's table written by real folds, without Spark and without a broker.

    rows with weights ──► gather ──► fold over MemoryState ──► files of some tasks ──► commit

So the correct content of the table is known: `state` is the state that the next fold reads.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any
from uuid import uuid4

from jobs.core.fold.fold import ChangelogRow, FoldContext, FoldResult, fold, fold_time
from jobs.core.fold.program import Program
from jobs.core.fold.rules import DEFAULT_RULES, Rules
from jobs.core.fold.state import Clock, GroupTimer, Key, MemoryState, Upserts
from jobs.core.plan.bucket import bucket_of
from jobs.core.plan.tree import Plan
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Value
from jobs.core.values.order_key import encoder
from jobs.edge.table.compaction import Merge, merge_files
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.epoch_files import SEQ_BUCKET_BITS, TableLayout
from jobs.edge.table.file_writer import AddedFile, file_name, write_file
from jobs.reading.parts import ACCUMULATORS, CHANGELOG, MULTISETS, TIMERS
from schemas.table.epoch import EpochRow
from schemas.table.object_path import TablePath
from schemas.types.sql_types import BIGINT, STRING, SqlType
from tests.support.epoch_rows import epoch_row

QUERY = "SELECT name, SUM(v) AS total, MAX(v) AS top, COUNT(*) AS n FROM t GROUP BY name"
COLUMNS = {"name": STRING, "v": BIGINT}
BUCKETS = 4
Row = tuple[Key, tuple[Value, ...], int]  # group, arguments, weight


def a_plan(query: str = QUERY, columns: dict[str, SqlType] | None = None) -> Plan:
    return parse_query(query, COLUMNS if columns is None else columns)


class FoldedTable:
    """A table, with the state and the changelog that it must contain."""

    def __init__(
        self,
        root: TablePath,
        plan: Plan | None = None,
        *,
        buckets: int = BUCKETS,
        rules: Rules = DEFAULT_RULES,
        **start: Any,
    ) -> None:
        self.plan = a_plan() if plan is None else plan
        self.rules = rules
        self.now_ms = 0
        self.layout = TableLayout(Program(self.plan))
        self.buckets = buckets
        self.types = [kind for _, kind in self.layout.group]
        self.table = EpochTable.create(root, self.layout)
        self.state = MemoryState()
        self.changelog: list[tuple[int, int, ChangelogRow]] = []
        self.newest = epoch_row(0, self.plan, **start)
        self.table.commit_epoch(self.newest, ())

    def copied(self, root: Path) -> FoldedTable:
        """Return a copy of the table in another place, like a restored backup."""
        shutil.copytree(self.root, root)
        copy = deepcopy(self, {id(self.table): None, id(self.layout): self.layout})
        copy.table = EpochTable.open(root, self.layout)
        return copy

    @property
    def root(self) -> Path:
        assert isinstance(self.table.root, Path)  # tests look into it
        return self.table.root

    def epoch(self, rows: Iterable[Row] = (), *, tasks: int = 1, **fields: Any) -> EpochRow:
        """Fold rows and commit the epoch; `tasks` tasks write its files."""
        of_bucket: dict[int, list[Row]] = {bucket: [] for bucket in range(self.buckets)}
        for change in rows:
            of_bucket[bucket_of(change[0], self.types, self.buckets)].append(change)
        return self._epoch(lambda bucket: self._fold(of_bucket[bucket]), tasks, fields)

    def time_epoch(self, ms: int = 0, *, release: bool = False, **fields: Any) -> EpochRow:
        """Let time pass, and commit the work that becomes due."""
        self.now_ms += ms
        return self._epoch(lambda bucket: self._fold_time(bucket, release), 1, fields)

    def _epoch(
        self, folded: Callable[[int], FoldResult], tasks: int, fields: Mapping[str, Any]
    ) -> EpochRow:
        number, uuid = self.newest.epoch + 1, uuid4().hex
        files: list[AddedFile] = []
        for task in range(tasks):
            mine = range(task, self.buckets, tasks)
            files += self._files(number, uuid, f"f{task}", mine, folded)
        named: dict[str, list[str]] = {}
        for file in files:
            named.setdefault(file.part, []).append(file.path)
        row = epoch_row(number, self.plan, **{"uuid": uuid, "files": named, **fields})
        self.table.commit_epoch(row, files)
        self.newest = row
        return row

    def merge(self, merge: Merge) -> list[AddedFile]:
        uuid = uuid4().hex
        added = merge_files(self.plan, self.table.root, merge, uuid)
        self.table.commit(added, merge.files, uuid=uuid, what="compaction")
        return added

    def _files(
        self,
        epoch: int,
        uuid: str,
        writer: str,
        buckets: Iterable[int],
        fold_bucket: Callable[[int], FoldResult],
    ) -> list[AddedFile]:
        changelog: list[tuple[int, ChangelogRow]] = []
        all_upserts: list[tuple[int, Upserts]] = []
        for bucket in buckets:
            folded = fold_bucket(bucket)
            first = bucket << SEQ_BUCKET_BITS
            changelog += [(first + i, row) for i, row in enumerate(folded.changelog)]
            all_upserts.append((bucket, folded.upserts))
            self.state.apply(folded.upserts)
        self.changelog += [(epoch, seq, row) for seq, row in changelog]
        groups = [(b, group) for b, upserts in all_upserts for group in upserts.groups]
        multisets = [(b, each) for b, upserts in all_upserts for each in upserts.multisets]
        timers = [(b, each) for b, upserts in all_upserts for each in upserts.timers]
        layout = self.layout
        tables = {
            CHANGELOG: layout.changelog_table(
                epoch, [seq for seq, _ in changelog], [row for _, row in changelog]
            ),
            ACCUMULATORS: layout.accumulators_table(
                epoch, [b for b, _ in groups], [group for _, group in groups]
            ),
            MULTISETS: layout.multisets_table(
                epoch, [b for b, _ in multisets], [each for _, each in multisets]
            ),
            TIMERS: layout.timers_table(
                epoch, [b for b, _ in timers], [each for _, each in timers]
            ),
        }
        return [
            write_file(self.table.root, file_name(part, epoch, uuid, writer), table)
            for part, table in tables.items()
            if table.num_rows
        ]

    def _fold(self, rows: list[Row]) -> FoldResult:
        keys = [key for key, _, _ in rows]
        arguments = [[row[1][i] for row in rows] for i in range(len(self.plan.arguments))]
        weights = [weight for _, _, weight in rows]
        gathered = self.layout.program.gather(keys, *arguments, list(range(len(rows))), weights)
        return fold(self.layout.program, self.state, gathered, self._context)

    @property
    def _context(self) -> FoldContext:
        return FoldContext(encoder(tuple(self.types)), self.rules, self.now_ms)

    def _fold_time(self, bucket: int, release: bool) -> FoldResult:
        """Fold one bucket; all buckets share one state, so each reads only its own groups."""
        own = OneBucket(self, bucket)
        return fold_time(self.layout.program, own, self._context, release=release)


class OneBucket(MemoryState):
    """The part of a table's state that belongs to one bucket."""

    def __init__(self, table: FoldedTable, bucket: int) -> None:
        super().__init__()
        self.__dict__ |= vars(table.state)
        self._table, self._bucket = table, bucket

    def _mine(self, key: Key) -> bool:
        return bucket_of(key, self._table.types, self._table.buckets) == self._bucket

    def withheld(self) -> list[Key]:
        return list(filter(self._mine, super().withheld()))

    def due(self, clock: Clock, time: int) -> list[GroupTimer]:
        return [timer for timer in super().due(clock, time) if self._mine(timer.key)]


def insert(name: Value, *values: Value) -> list[Row]:
    return [((name,), (value,), 1) for value in values]


def delete(name: Value, *values: Value) -> list[Row]:
    return [((name,), (value,), -1) for value in values]


def rival_of(table: EpochTable) -> EpochTable:
    """Return a second handle of the table, as another writer has."""
    return EpochTable.open(table.root, table.layout)


def entries(root: Path) -> list[str]:
    """Return the names of the commits that the log still has."""
    return sorted(path.name for path in (root / "_delta_log").glob("*.json"))
