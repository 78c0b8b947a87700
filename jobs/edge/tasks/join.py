"""The join task: turn the changes of both sides of a join into the changes of its rows.

    rows of both sides, by join key ─┬─ bucket 3 ─► arrangements at base ─► joined ─┬─► for each
                                     └─ bucket 7 ─► ...                     rows    │   reader:
    reports, rows for others ────────────────────────────────► unchanged           │   evaluated
                                                                                    └─► the sides'
                                                                                        state

It runs between decoding and the fold, once for each join. Its readers are views, or the next join.
Like the fold task it reads its state at a base and writes only new files.

An expression may fail on a joined row, which is of several messages, so none of them is refused:
the row counts for nothing as long as it is there. Its retraction fails as well, so the result is
exact for the rows that do not fail. The epoch has the number of the others among its counters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from jobs.core.fold.fold import FoldContext
from jobs.core.fold.rules import DEFAULT_RULES
from jobs.core.fold.state import Stamp, Upserts
from jobs.core.join.arrangement import WeightedRow
from jobs.core.join.operator import ByKey, JoinOperator, TooManyPairs
from jobs.core.join.stages import JoinStage, Side
from jobs.core.join.tree import make_batches
from jobs.core.rows.consolidate import WeightedRows
from jobs.core.rows.projection import RowFailed
from jobs.core.values.change import Row
from jobs.core.values.order_key import encoder
from jobs.edge.process.failpoints import failpoint
from jobs.edge.rows.columns import rows_to_arrow
from jobs.edge.rows.evaluated_rows import evaluate_rows
from jobs.edge.rows.range_rows import RangeRows
from jobs.edge.rows.weighted_rows import (
    BUCKET,
    WEIGHT,
    report_parcel,
    sort_parcels,
    take_batches,
    unpack_parcels,
)
from jobs.edge.state.bucket_states import BucketStates, CommittedEpoch
from jobs.edge.state.hot_records import Layout, Snapshot
from jobs.edge.state.hot_state import HotState
from jobs.edge.state.stored_arrangement import StoredArrangement
from jobs.edge.table.epoch_files import layout_of
from jobs.edge.table.file_writer import AddedFile, file_name, write_file
from jobs.edge.tasks.decode_inputs import ViewInputs
from jobs.table.parts import ACCUMULATORS, GROUP_STATE, MULTISETS
from schemas.limits import (
    HOT_STATE_CHUNK_RECORDS,
    JOIN_BATCH_ROWS,
    REASON_CHARACTERS_MAX,
    TASK_BYTES_MAX,
)
from schemas.table.object_path import TablePath
from schemas.types.arrow_values import to_tuples

Changes = dict[int, ByKey]  # by bucket


class JoinReport(msgspec.Struct, kw_only=True, tag="join"):
    """The report of one task of a join."""

    task: int
    too_large: bool = False  # the input has more bytes than a task may hold; nothing was done
    refused: str | None = None  # why the job must stop
    arrived: dict[int, int] = {}  # weighted rows, by the number of the side
    shipped: dict[int, int] = {}  # weighted rows, by the number of the reader
    failing: dict[int, int] = {}  # rows on which an expression of a reader fails: the change
    reason: str | None = None  # of one of them
    files: dict[str, list[AddedFile]] = {}  # by the name of the side

    def add_failing(self, reader: int, weight: int, reason: str) -> None:
        """Count rows on which an expression of a reader fails."""
        self.failing[reader] = self.failing.get(reader, 0) + weight
        self.reason = self.reason or reason[:REASON_CHARACTERS_MAX]


@dataclass(frozen=True, slots=True)
class SideState:
    """A side, and where its state is; a value, so that Spark can send it to the workers."""

    number: int  # among the readers of parcels
    side: Side
    root: TablePath
    cache: Path
    base: Stamp
    version: int  # of the table, at base
    recent_epochs: tuple[CommittedEpoch, ...]  # in order, base last


@dataclass(frozen=True, slots=True)
class JoinTask:
    """A task between decoding and the fold; a value, so that Spark can send it to the workers."""

    stage: JoinStage
    left: SideState
    right: SideState
    readers: tuple[ViewInputs, ...]
    targets: int
    epoch: int
    uuid: str
    durable: bool = False
    bytes_max: int = TASK_BYTES_MAX

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the parcels for the readers and for others, and the reports."""
        failpoint("join_task")
        found = take_batches(batches, self.bytes_max)
        if found is None:
            yield _report(JoinReport(task=-1, too_large=True))
        parcels = sort_parcels(found or (), self.targets)
        left, right = (parcels.pop(side.number, ()) for side in (self.left, self.right))
        yield from chain.from_iterable(parcels.values())
        if not left and not right:
            return
        run = _Join(self)
        try:
            for batch in make_batches(run.run(left, right), JOIN_BATCH_ROWS):
                yield from self._send(batch, run.report)
            run.finish()
        except TooManyPairs as refused:
            run.report = JoinReport(task=run.report.task, refused=str(refused))
        yield _report(run.report)

    def _send(self, batch: Sequence[WeightedRow], report: JoinReport) -> Iterator[pa.RecordBatch]:
        """Yield joined rows, evaluated for each reader, as parcels."""
        types = [column.type for column in self.stage.join.columns]
        arrays = rows_to_arrow([row for row, _ in batch], types)
        rows = RangeRows(arrays, np.array([weight for _, weight in batch], np.int64))
        for reader in self.readers:
            own = rows.select(reader.indexes)
            weighted = own.consolidate(0, keep_zeros=False)
            shipped = len(weighted.indexes)
            if reader.parcelling.evaluates:
                own, weighted, failing = _evaluate(reader, own, weighted, report)
                shipped -= failing
            report.shipped[reader.number] = report.shipped.get(reader.number, 0) + shipped
            yield from reader.parcelling.parcels(own, weighted)


def _evaluate(
    reader: ViewInputs, rows: RangeRows, weighted: WeightedRows, report: JoinReport
) -> tuple[RangeRows, WeightedRows, int]:
    """Return the evaluated rows without those that fail, and the number of these."""
    evaluated = evaluate_rows(reader.plan, rows, weighted)
    if not evaluated.failures:
        return evaluated.rows, evaluated.weighted, 0
    failing = [position for position, _ in evaluated.failures]
    weight = int(weighted.weights[np.isin(weighted.positions, failing)].sum())
    report.add_failing(reader.number, weight, evaluated.failures[0][1])
    kept = ~np.isin(evaluated.weighted.positions, failing)
    left = WeightedRows(*(array[kept] for array in evaluated.weighted))
    return evaluated.rows, left, len(failing)


class _Join:
    """One run of a join task over its buckets."""

    def __init__(self, task: JoinTask) -> None:
        context = TaskContext.get()
        self.task = task
        self.report = JoinReport(task=context.partitionId() if context else 0)
        writer = f"j{context.taskAttemptId() if context else 0}"
        self.sides = [_SideRun(task, state, writer) for state in (task.left, task.right)]

    def run(
        self, left: Iterable[pa.RecordBatch], right: Iterable[pa.RecordBatch]
    ) -> Iterator[WeightedRow]:
        """Yield the changes of the join."""
        left_changes, right_changes = (
            side.read(list(found), self.report)
            for side, found in zip(self.sides, (left, right), strict=True)
        )
        for bucket in sorted({*left_changes, *right_changes}):
            changes = left_changes.pop(bucket, {}), right_changes.pop(bucket, {})
            keys = {key for each in changes for key in each if key is not None}
            with ExitStack() as views:
                arranged = [views.enter_context(side.open(bucket, keys)) for side in self.sides]
                operator = JoinOperator(self.task.stage.join, *arranged, on_failure=self._fail)
                yield from operator.advance_keys(*changes)
                for side, arrangement in zip(self.sides, arranged, strict=True):
                    side.take(bucket, arrangement)

    def _fail(self, failed: RowFailed, weight: int) -> None:
        """Count a pair on which the condition of the join fails, for all readers."""
        for reader in self.task.readers:
            self.report.add_failing(reader.number, weight, str(failed))

    def finish(self) -> None:
        """Write the last of the new states."""
        self.report.files = {side.state.side.name: side.finish() for side in self.sides}


class _SideRun:
    """One side of a join: its changes in, its new state out."""

    def __init__(self, task: JoinTask, state: SideState, writer: str) -> None:
        self.state = state
        self._task = task
        self._writer = f"{writer}-{state.number}"
        plan = state.side.state
        self._layout = layout_of(plan)
        self._states = BucketStates(state, self._layout, Layout.of(plan), GROUP_STATE, "bucket")
        order = encoder(tuple(each.type for each in plan.group))
        self._context = FoldContext(order, DEFAULT_RULES, 0, None)
        self._upserts = Upserts([], [], [])
        self._buckets: list[int] = []
        self._entry_buckets: list[int] = []
        self._files: list[AddedFile] = []
        self._open: tuple[HotState, Snapshot] | None = None  # of the bucket that is joined

    def read(self, found: Sequence[pa.RecordBatch], report: JoinReport) -> Changes:
        """Return the changes of the side's rows."""
        changes: Changes = {}
        if not found:
            return changes
        table = unpack_parcels(pa.Table.from_batches(found))
        report.arrived[self.state.number] = table.num_rows
        plan = self.state.side.inputs
        keys = to_tuples(table, [(f"g{i}", each.type) for i, each in enumerate(plan.group)])
        rows = to_tuples(table, [(f"a{i}", each.type) for i, each in enumerate(plan.arguments)])
        numbers = (table[name].to_numpy().tolist() for name in (BUCKET, WEIGHT))
        for key, row, bucket, weight in zip(keys, rows, *numbers, strict=True):
            of_key = None if None in key else key
            by_row = changes.setdefault(bucket, {}).setdefault(of_key, {})
            by_row[row] = by_row.get(row, 0) + weight
        return changes

    @contextmanager
    def open(self, bucket: int, keys: Collection[Row]) -> Iterator[StoredArrangement]:
        """Open the arrangement of a bucket; these keys will be read."""
        hot = self._states.catch_up(bucket)
        with hot.view(self.state.base) as view:
            self._open = hot, view
            arranged = StoredArrangement(view, self._layout.program, self._context)
            arranged.read_together(keys)
            yield arranged

    def take(self, bucket: int, arranged: StoredArrangement) -> None:
        """Fold the changes of the open bucket."""
        task, upserts = self._task, arranged.fold()
        assert self._open is not None, "the bucket is open"
        hot, view = self._open
        hot.remember(task.epoch, task.uuid, view.to_records(upserts))
        self._upserts.groups += upserts.groups
        self._upserts.multisets += upserts.multisets
        self._buckets += repeat(bucket, len(upserts.groups))
        self._entry_buckets += repeat(bucket, len(upserts.multisets))
        if len(self._upserts) >= HOT_STATE_CHUNK_RECORDS:
            self._write()

    def finish(self) -> list[AddedFile]:
        """Write the last of the new state, and return all files."""
        self._write()
        return self._files

    def _write(self) -> None:
        task, layout, upserts = self._task, self._layout, self._upserts
        tables = {
            ACCUMULATORS: layout.accumulators_table(task.epoch, self._buckets, upserts.groups),
            MULTISETS: layout.multisets_table(task.epoch, self._entry_buckets, upserts.multisets),
        }
        for part, table in tables.items():
            if table.num_rows:
                writer = f"{self._writer}-{len(self._files)}"
                name = file_name(part, task.epoch, task.uuid, writer)
                self._files.append(write_file(self.state.root, name, table, durable=task.durable))
        self._upserts, self._buckets, self._entry_buckets = Upserts([], [], []), [], []


def _report(report: JoinReport) -> pa.RecordBatch:
    return report_parcel(msgspec.json.encode(report))
