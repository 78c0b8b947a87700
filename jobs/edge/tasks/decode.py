"""The decode task: one range of a Kafka partition becomes weighted rows and one report.

    planned range ─► Kafka ─► decode ─► consolidate ─► rows: used columns, __position, __weight
                                 │                └──► one row with __report (JSON), nothing else
                                 └► rejects ─► a quarantine file of this task

Of a job with dedupe the rows are images, and instead of being consolidated the last change of each
key is shipped; __weight says what it stands for (core.dedupe).

It runs inside mapInArrow. The report is an ordinary row of the result, so it comes exactly once
per task that Spark counted as done, whatever was tried again.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from jobs.core.fold.window_closing import Late
from jobs.core.plan.tree import Plan
from jobs.core.rows.consolidate import RUNNING_BITS, Integers, Weighted, consolidated, group_places
from jobs.core.rows.dedupe import key_places, latest
from jobs.edge.kafka.range import RangeSilent, RangeUnreadable, records_of
from jobs.edge.kafka.ranges import OffsetRange
from jobs.edge.process.failpoints import failpoint
from jobs.edge.rows.columns import numbered
from jobs.edge.rows.late_rows import LATE, Deadline, late_rows
from jobs.edge.rows.weighted_rows import (
    POSITION,
    REPORT,
    WEIGHT,
    Parcelling,
    report_parcel,
    rows_schema,
)
from jobs.edge.tasks.range_reading import RangeReading, RangeReport, RangeTooLarge, SourceRules
from schemas.limits import TASK_BYTES_MAX
from schemas.table.object_path import TablePath
from schemas.types.arrow_types import arrow_type


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """The function of the map stage; a value, so that it travels to the workers."""

    plan: Plan
    rules: SourceRules
    connection: Mapping[str, str] = field(repr=False)  # librdkafka's words; it has secrets
    ranges: tuple[OffsetRange, ...]
    root: TablePath
    epoch: int
    uuid: str
    durable: bool = False
    horizon_ms: int | None = None  # a row of a later time is quarantined
    deadline: Deadline | None = None  # of windows that close
    # Rows whose expressions failed the first time: their positions, and why.
    failing: tuple[tuple[int, str], ...] = ()
    bytes_max: int = TASK_BYTES_MAX
    probing: bool = False  # with dedupe: ship every row to be evaluated, not the last ones
    parcelling: Parcelling | None = None  # of rows that nobody has to evaluate

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with collector_off():
            yield from self._decoded(batches)

    def _decoded(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        failpoint("decode_task")
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else 0
        ordinals = [ordinal for batch in batches for ordinal in batch.column(0).to_pylist()]
        for ordinal in ordinals:
            began = time.monotonic()
            run = RangeReading(self, ordinal, f"m{attempt}-{ordinal}")
            try:
                for records in records_of(self.connection, self.ranges[ordinal]):
                    run.take(records)
            except RangeTooLarge:
                yield self._reported(RangeReport(task=ordinal, too_large=True))
                continue
            except RangeUnreadable as problem:
                silent = isinstance(problem, RangeSilent)
                report = RangeReport(task=ordinal, unreadable=str(problem), silent=silent)
                yield self._reported(report)
                continue
            run.finish()
            run.report.seconds = round(time.monotonic() - began, 4)
            yield from self._finished(run)

    def _finished(self, run: RangeReading) -> Iterator[pa.RecordBatch]:
        if run.signed_rows.signs:
            columns, signs = run.signed_rows.joined()
            if self.plan.primary_key:
                yield self._images(run, columns, signs)
                yield self._reported(run.report)
                return
            late = self.deadline.late(self.plan, columns) if self.deadline else None
            if late is None or not late.partly.any():
                yield from self._weighted(run, columns, signs)
            else:
                yield from self._weighted(run, columns, signs, np.flatnonzero(~late.whole))
                yield self._late(run, columns, signs, late)
        yield self._reported(run.report)

    def _images(
        self, run: RangeReading, columns: list[pa.Array], signs: Integers
    ) -> pa.RecordBatch:
        """The last change of each row that a range knows, or all images to be evaluated."""
        start = run.number << RUNNING_BITS
        if self.probing:
            places = np.flatnonzero(signs > 0)
            standing = signs[places]
        else:
            keys = [columns[place] for place in key_places(self.plan)]
            places, standing = latest(numbered(keys, len(signs)), signs)
        return self._shipped(run, columns, Weighted(places, start + places, standing))

    def _weighted(
        self,
        run: RangeReading,
        columns: list[pa.Array],
        signs: Integers,
        only: Integers | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a range, or some of them, consolidated; positions are those in the range."""
        if only is not None:
            columns, signs = [column.take(pa.array(only)) for column in columns], signs[only]
        places = group_places(self.plan)
        groups = None if places is None else numbered([columns[i] for i in places], len(signs))
        numbers = numbered(columns, len(signs))
        weighted = consolidated(run.number, numbers, signs, groups, only)
        if self.parcelling is None or groups is None:
            yield self._shipped(run, columns, weighted)
        else:
            run.report.shipped += len(weighted.places)
            yield from self.parcelling.parcels(columns, weighted, groups)

    def _late(
        self, run: RangeReading, columns: list[pa.Array], signs: Integers, late: Late
    ) -> pa.RecordBatch:
        """The rows that a window takes no more, each by itself."""
        assert self.deadline is not None
        rows = np.flatnonzero(late.partly)
        told = late_rows(self.plan, self.deadline.closing, run.messages, columns, signs, late)
        place = {"topic": run.range.topic, "partition": run.range.partition}
        payloads = [msgspec.json.encode(msgspec.structs.replace(row, **place)) for row in told]
        weighted = Weighted(rows, (run.number << RUNNING_BITS) + rows, signs[rows])
        return self._shipped(run, columns, weighted, payloads)

    def _shipped(
        self,
        run: RangeReading,
        columns: Sequence[pa.Array],
        weighted: Weighted,
        late: Sequence[bytes] | None = None,
    ) -> pa.RecordBatch:
        shipped = pa.array(weighted.places)
        run.report.shipped += len(shipped)
        told = {
            POSITION: pa.array(weighted.positions),
            WEIGHT: pa.array(weighted.weights),
        }
        if late is not None:
            told[LATE] = pa.array(late, pa.binary())
        return self._batch(len(shipped), [column.take(shipped) for column in columns], told)

    def _reported(self, report: RangeReport) -> pa.RecordBatch:
        payload = msgspec.json.encode(report)
        if self.parcelling is not None:
            return report_parcel(payload)
        columns = [pa.nulls(1, arrow_type(column.type)) for column in self.plan.image]
        told = {REPORT: pa.array([payload], pa.binary())}
        return self._batch(1, columns, told)

    def _batch(
        self, rows: int, columns: Sequence[pa.Array], told: Mapping[str, pa.Array]
    ) -> pa.RecordBatch:
        """Columns of the source, and of ours what there is to tell."""
        late = () if self.deadline is None else ((LATE, pa.binary()),)
        schema = rows_schema(self.plan.image, late)
        own = [schema.field(place) for place in range(len(columns), len(schema))]
        found = [told.get(field.name, pa.nulls(rows, field.type)) for field in own]
        return pa.RecordBatch.from_arrays([*columns, *found], schema=schema)


@contextmanager
def collector_off() -> Iterator[None]:
    """No cycles are made here, but hundreds of thousands of tuples: walking them again and again
    to find none would take a fifth of a task."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
