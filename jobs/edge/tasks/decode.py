"""The decode task: turn ranges of partitions into weighted rows, and a report of each range.

    planned range ─► Kafka ─► decode ─► consolidate ─► evaluate ─► parcels of rows, by fold task
                                 │                        │   └──► one parcel with the report (JSON)
                                 └► rejects ◄─────────────┘ ─► a quarantine file of this task

In a job with dedupe the rows are images. The task does not consolidate them but emits the changes
of each key that matter, with time and partition; __weight is the encoding of core.rows.dedupe.

The task runs inside mapInArrow. A report is an ordinary row of the result, so the driver gets
exactly one of each range, however often Spark retried the task.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from jobs.core.fold.window_closing import Booleans, Late
from jobs.core.plan.tree import Plan
from jobs.core.plan.walk import plan_can_fail
from jobs.core.rows.consolidate import (
    RUNNING_BITS,
    Integers,
    WeightedRows,
    group_indexes,
)
from jobs.core.rows.dedupe import key_indexes, number_partition, select_changes
from jobs.core.rows.truncations import Truncation
from jobs.core.time.rows_in_order import PartitionStart
from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.kafka.range_consumer import RangeTimedOut, RangeUnreadable, read_ranges
from jobs.edge.process.failpoints import failpoint
from jobs.edge.rows.evaluated_rows import EvaluatedRows, evaluate_rows
from jobs.edge.rows.late_rows import Deadline, late_rows
from jobs.edge.rows.range_rows import RangeRows
from jobs.edge.rows.weighted_rows import (
    CHANGE_PARTITION,
    CHANGE_TIME,
    POSITION,
    REPORT,
    ROW_BUCKET,
    WEIGHT,
    Parcelling,
    image_parcels,
    image_schema,
    report_parcel,
)
from jobs.edge.tasks.body import task_body
from jobs.edge.tasks.decode_views import ViewInputs, emit_views
from jobs.edge.tasks.range_reading import RangeReader, RangeTooLarge, SourceRules
from jobs.edge.tasks.range_report import RangeReport
from schemas.limits import TASK_BYTES_MAX
from schemas.table.epoch import SourceMemory, TopicPartition
from schemas.table.object_path import TablePath
from schemas.types.arrow_types import arrow_type


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """The function of the map stage; a value, so that Spark can send it to the workers."""

    plan: Plan
    rules: SourceRules
    connection: Mapping[str, str] = field(repr=False)  # librdkafka's options, with secrets
    ranges: tuple[OffsetRange, ...]
    root: TablePath
    epoch: int
    uuid: str
    durable: bool = False
    # By topic: a row with a later time is quarantined.
    horizons: Mapping[str, int] = field(default_factory=dict)
    deadline: Deadline | None = None  # for jobs whose windows close
    # Positions of rows whose expressions fail, with reasons, when the range is read again.
    failing: tuple[tuple[int, str], ...] = ()
    bytes_max: int = TASK_BYTES_MAX
    parcelling: Parcelling | None = None  # of the rows to fold; None if all of them are of views
    drop_early: bool = False  # the fold drops retractions before the first row of a group
    touches_groups: bool = False  # under a TTL, rows that cancel keep their group alive
    starts: tuple[PartitionStart | None, ...] = ()  # of each range whose rows are checked in order
    memories: tuple[SourceMemory | None, ...] = ()  # of the messages before each range
    now_ms: int = 0  # the driver's clock
    key_buckets: int = 0  # with dedupe: each of them gets the TRUNCATEs of the epoch
    views: tuple[ViewInputs, ...] = ()  # of a job with several; `plan` then has all their columns

    @property
    def has_views(self) -> bool:
        return bool(self.views)

    @property
    def needs_messages(self) -> bool:
        """Whether the message of each row must be known."""
        return self.deadline is not None or any(view.needs_messages for view in self.views)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with task_body():
            yield from self.decode_ranges(batches)

    def decode_ranges(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows and the report of each range; `batches` have the ranges' numbers."""
        failpoint("decode_task")
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else 0
        ordinals = [ordinal for batch in batches for ordinal in batch.column(0).to_pylist()]
        for together in self._rounds(ordinals):
            started = time.monotonic()
            runs = {
                self.ranges[ordinal]: RangeReader(self, ordinal, f"m{attempt}-{ordinal}")
                for ordinal in together
            }
            failed = self._read(runs)
            for run in runs.values():
                if failed is None:
                    yield from self._end_range(run, started)
                else:
                    yield _report_failure(failed, run)

    @property
    def _copies(self) -> int:
        """How often a row is in the memory of the task: once for each grouping set and window."""
        parcellings = [self.parcelling, *(view.parcelling for view in self.views)]
        return max((each.copies for each in parcellings if each is not None), default=1)

    def _read(self, runs: Mapping[OffsetRange, RangeReader]) -> RangeReport | None:
        """Read and decode all records of some ranges; return the report of a failure."""
        try:
            for planned, records in read_ranges(self.connection, tuple(runs)):
                runs[planned].take(records)
                size = sum(run.signed_rows.bytes for run in runs.values())
                if size * self._copies > self.bytes_max:
                    raise RangeTooLarge
        except RangeTooLarge:
            return RangeReport(number=0, too_large=True)
        except RangeUnreadable as problem:
            silent = isinstance(problem, RangeTimedOut)
            return RangeReport(number=0, unreadable=str(problem), silent=silent)
        return None

    def _end_range(self, run: RangeReader, started: float) -> Iterator[pa.RecordBatch]:
        """Yield the rows and the report of a range.

        If an expression fails on a row, the range is read again, and the row's message refused.
        """
        task, rows = self, run.rows()
        if rows is not None and (refusing := self._find_failing(run, rows)) is not None:
            task, run = refusing, RangeReader(refusing, run.number, run.writer)
            if (failed := task._read({run.range: run})) is not None:
                yield _report_failure(failed, run)
                return
            rows = None
        run.finish()
        run.report.seconds = round(time.monotonic() - started, 4)
        if (rows := rows or run.rows()) is not None:
            emitted = emit_views(task, run, rows) if self.views else task.emit_changes(run, rows)
            yield from emitted
        if run.report.truncations:
            yield from self._truncation_parcels(run.report.truncations)
        yield report_parcel(msgspec.json.encode(run.report))

    def _find_failing(self, run: RangeReader, rows: RangeRows) -> DecodeTask | None:
        """Return the task that refuses the messages on whose rows an expression fails, if any."""
        views = tuple(
            replace(view, failing=self.for_view(view)._failures(run, rows.select(view.indexes)))
            for view in self.views
        )
        failing = tuple(chain(self._failures(run, rows), *(view.failing for view in views)))
        return replace(self, failing=failing, views=views) if failing else None

    def _failures(self, run: RangeReader, rows: RangeRows) -> tuple[tuple[int, str], ...]:
        """Return the positions of rows whose expressions fail, with the reasons."""
        if self.parcelling is None or not plan_can_fail(self.plan):
            return ()
        if not self.plan.primary_key:
            return self._evaluate(rows, self._weigh(run, rows)).failures
        # Every image, also one that another image of the range replaces: whether its message is
        # refused must not depend on what came with it.
        images = np.flatnonzero(rows.signs > 0)
        used = rows.select(range(len(self.plan.used)))
        weighted = WeightedRows(images, (run.number << RUNNING_BITS) + images, rows.signs[images])
        return evaluate_rows(self.plan, used, weighted).failures

    def _evaluate(self, rows: RangeRows, weighted: WeightedRows) -> EvaluatedRows:
        """Return the evaluated rows of a range; they are evaluated once."""
        return rows.once(("evaluated", self.plan), lambda: evaluate_rows(self.plan, rows, weighted))

    def _rounds(self, ordinals: Iterable[int]) -> Iterator[list[int]]:
        """Yield the ranges of a task in parts of different partitions, to read them together."""
        together: dict[TopicPartition, int] = {}
        for ordinal in ordinals:
            partition = self.ranges[ordinal].topic_partition
            if partition in together:
                yield list(together.values())
                together = {}
            together[partition] = ordinal
        if together:
            yield list(together.values())

    def emit_changes(
        self,
        run: RangeReader,
        rows: RangeRows,
        taken: Booleans | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the weighted rows of a range, which has these signed rows; only those `taken`."""
        if self.plan.primary_key:
            yield from self._image_parcels(run, rows)
            return
        late = None
        if self.deadline is not None:
            late = self.deadline.late(self.plan, rows.columns, run.watermarks)
            if taken is not None:
                late = Late(late.whole & taken, late.partly & taken)
        if late is None or not late.partly.any():
            only = None if taken is None else np.flatnonzero(taken)
            yield from self._consolidate(run, rows, only)
        else:
            alone = late.partly if self.rules.in_order else late.whole
            together = ~alone if taken is None else ~alone & taken
            yield from self._consolidate(run, rows, np.flatnonzero(together))
            yield from self._late_parcels(run, rows, late)

    def for_view(self, view: ViewInputs) -> DecodeTask:
        """Return the task as of a job with this view only."""
        return replace(
            self,
            plan=view.plan,
            root=view.root,
            deadline=view.deadline,
            parcelling=view.parcelling,
            failing=(),
            views=(),
        )

    def _image_parcels(self, run: RangeReader, rows: RangeRows) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a range that matter, by the buckets of their keys."""
        start, messages = run.number << RUNNING_BITS, run.signed_rows.messages
        keys = key_indexes(self.plan)
        numbers = rows.number(keys)
        indexes, weights = select_changes(
            numbers, rows.signs, None if messages is None else messages.numbers
        )
        types = [column.type for column in self.plan.primary_key]
        taken, count = pa.array(indexes), len(indexes)
        run.report.shipped += count
        partition = number_partition(run.range.topic, run.range.partition)
        own = {
            POSITION: pa.array(start + indexes),
            WEIGHT: pa.array(weights),
            CHANGE_PARTITION: pa.repeat(pa.scalar(partition, pa.int64()), count),
            ROW_BUCKET: pa.array(
                rows.find_buckets(keys, types, self.key_buckets)[numbers[indexes]]
            ),
        }
        if messages is not None:
            own[CHANGE_TIME] = messages.times.take(taken)
        yield from self._send_images(count, [column.take(taken) for column in rows.columns], own)

    def _truncation_parcels(self, found: Sequence[Truncation]) -> Iterator[pa.RecordBatch]:
        """Yield TRUNCATEs as one row for each bucket of keys: a report with a bucket."""
        count = self.key_buckets
        columns = [pa.nulls(count, arrow_type(column.type)) for column in self.plan.image]
        payload = pa.scalar(msgspec.json.encode(found), pa.binary())
        own = {
            ROW_BUCKET: pa.array(range(count), pa.int64()),
            REPORT: pa.repeat(payload, count),
        }
        yield from self._send_images(count, columns, own)

    def _send_images(
        self, count: int, columns: Sequence[pa.Array], own: Mapping[str, pa.Array]
    ) -> Iterator[pa.RecordBatch]:
        """Yield images with these of our own columns; the others are NULL."""
        assert self.parcelling is not None
        schema = image_schema(self.plan.image)
        fields = [schema.field(index) for index in range(len(columns), len(schema))]
        arrays = [own.get(field.name, pa.nulls(count, field.type)) for field in fields]
        images = pa.RecordBatch.from_arrays([*columns, *arrays], schema=schema)
        yield from image_parcels(images, self.parcelling.targets)

    def _consolidate(
        self, run: RangeReader, rows: RangeRows, only: Integers | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the consolidated rows of a range, or of `only`; positions count in the range."""
        if only is not None:
            rows = rows.take(only)
        yield from self._send(run, rows, self._weigh(run, rows))

    def _send(
        self,
        run: RangeReader,
        rows: RangeRows,
        weighted: WeightedRows,
        late: pa.Array | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield weighted rows, evaluated, as parcels; `late` is what LATE has of each."""
        assert self.parcelling is not None
        run.report.shipped += len(weighted.indexes)
        if self.parcelling.evaluates:
            evaluated = self._evaluate(rows, weighted)
            evaluated.require_no_failures()
            rows, weighted = evaluated.rows, evaluated.weighted
            late = None if late is None else late.take(pa.array(evaluated.origins))
        yield from self.parcelling.parcels(rows, weighted, late)

    def _weigh(self, run: RangeReader, rows: RangeRows) -> WeightedRows:
        """Return the consolidated rows of a range."""
        if self.drop_early:
            return rows.consolidate_with_heads(run.number, group_indexes(self.plan))
        keep_zeros = self.touches_groups or plan_can_fail(self.plan)
        return rows.consolidate(run.number, keep_zeros=keep_zeros)

    def _late_parcels(
        self, run: RangeReader, rows: RangeRows, late: Late
    ) -> Iterator[pa.RecordBatch]:
        """Yield each row that is late for at least one window, without consolidation."""
        assert self.deadline is not None
        columns, signs = rows.columns, rows.signs
        late_indexes = np.flatnonzero(late.partly)
        late_records = late_rows(
            self.plan, self.deadline.closing, run.messages, columns, signs, late, run.watermarks
        )
        partition = {"topic": run.range.topic, "partition": run.range.partition}
        payloads = [
            msgspec.json.encode(msgspec.structs.replace(row, **partition)) for row in late_records
        ]
        positions = (run.number << RUNNING_BITS) + late_indexes
        late_signs = signs[late_indexes]
        positions = np.where(late_signs < 0, ~positions, positions)  # as consolidation has them
        # Of their own rows, because `rows` may know the values of its consolidated rows.
        alone = rows.take(late_indexes)
        weighted = WeightedRows(np.arange(len(late_indexes)), positions, late_signs)
        yield from self._send(run, alone, weighted, pa.array(payloads, pa.binary()))


def _report_failure(failed: RangeReport, run: RangeReader) -> pa.RecordBatch:
    return report_parcel(msgspec.json.encode(msgspec.structs.replace(failed, number=run.number)))
