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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message
from pyspark import TaskContext

from jobs.core.change import Changes, ColumnGone, Decoded, Filtered, Rejected, Row, Skipped
from jobs.core.consolidate import (
    RUNNING_BITS,
    Integers,
    Weighted,
    consolidated,
    group_places,
)
from jobs.core.dedupe import key_places, latest
from jobs.core.formats import KeyedDecoder, MessageDecoder, MessageRules
from jobs.core.marker import Marker
from jobs.core.plan import Column, Plan
from jobs.core.program import Program
from jobs.core.rounding import Failed
from jobs.core.row_time import time_of
from jobs.core.window_closing import Late
from jobs.edge.columns import numbered, to_arrow
from jobs.edge.epoch_files import QUARANTINE, AddedFile, Reject, TableLayout, file_name, write_file
from jobs.edge.failpoints import failpoint
from jobs.edge.kafka_range import RangeSilent, RangeUnreadable, records_of
from jobs.edge.late_rows import LATE, Deadline, Messages, late_rows
from jobs.edge.ranges import OffsetRange
from schemas.arrow_types import arrow_type
from schemas.limits import QUARANTINE_BYTES_MAX, QUARANTINE_FILE_BYTES, REASON_CHARACTERS_MAX
from schemas.object_path import TablePath

POSITION, WEIGHT, REPORT = "__position", "__weight", "__report"
FUTURE = "the row's time lies in the future"  # how that reason begins; only the clock knows it
NEVER, FOR_EVER = -(1 << 63) - 1, 1 << 63


@dataclass(frozen=True, slots=True)
class SourceRules:
    """How the records of a source are read; what the job spec says of it."""

    messages: MessageRules
    time: str = "es"  # or ts, kafka, ingestion; see core.row_time
    time_column: Column | None = None
    marker: Marker | None = None  # of punctuated watermarks

    def row(self, used: tuple[Column, ...]) -> tuple[Column, ...]:
        """The columns of a row: those that the query uses, and behind them what tells its time."""
        marking = () if self.marker is None else self.marker.columns
        return (*used, *marking, *(() if self.time_column is None else (self.time_column,)))


class RangeReport(msgspec.Struct, kw_only=True, tag="range"):
    """What one decode task did; the driver wants exactly one from each."""

    task: int
    topic: str | None = None  # None: the range held no records
    partition: int = -1
    start: int = -1
    read: int = 0
    decoded: int = 0
    skipped: int = 0
    filtered: int = 0
    quarantined: int = 0
    rows: int = 0  # signed rows
    shipped: int = 0  # weighted rows sent on
    unreadable: str | None = None  # why the range could not be read
    silent: bool = False  # that it may be read later
    event_time_max: int | None = None
    event_time_marked: int | None = None  # the greatest one up to the last marked row
    event_times_missing: int = 0
    gone: str | None = None  # a declared column that the source no longer has
    first_reject: str | None = None
    quarantine: list[AddedFile] = []
    seconds: float = 0.0  # that reading and decoding took


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
    probing: bool = False  # with dedupe: ship every row to be evaluated, not the last ones

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
            run = _Range(self, ordinal, f"m{attempt}-{ordinal}")
            try:
                for records in records_of(self.connection, self.ranges[ordinal]):
                    run.take(records)
            except RangeUnreadable as problem:
                silent = isinstance(problem, RangeSilent)
                report = RangeReport(task=ordinal, unreadable=str(problem), silent=silent)
                yield self._reported(report)
                continue
            run.finish()
            run.report.seconds = round(time.monotonic() - began, 4)
            yield from self._finished(run)

    def _finished(self, run: _Range) -> Iterator[pa.RecordBatch]:
        if run.signed_rows.signs:
            columns, signs = run.signed_rows.joined()
            if self.plan.primary_key:
                yield self._images(run, columns, signs)
                yield self._reported(run.report)
                return
            late = self.deadline.late(self.plan, columns) if self.deadline else None
            if late is None or not late.partly.any():
                yield self._weighted(run, columns, signs)
            else:
                yield self._weighted(run, columns, signs, np.flatnonzero(~late.whole))
                yield self._late(run, columns, signs, late)
        yield self._reported(run.report)

    def _images(self, run: _Range, columns: list[pa.Array], signs: Integers) -> pa.RecordBatch:
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
        self, run: _Range, columns: list[pa.Array], signs: Integers, only: Integers | None = None
    ) -> pa.RecordBatch:
        """The rows of a range, or some of them, consolidated; positions are those in the range."""
        if only is not None:
            columns, signs = [column.take(pa.array(only)) for column in columns], signs[only]
        places = group_places(self.plan)
        groups = None if places is None else numbered([columns[i] for i in places], len(signs))
        numbers = numbered(columns, len(signs))
        weighted = consolidated(run.number, numbers, signs, groups, only)
        return self._shipped(run, columns, weighted)

    def _late(
        self, run: _Range, columns: list[pa.Array], signs: Integers, late: Late
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
        run: _Range,
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
        columns = [pa.nulls(1, arrow_type(column.type)) for column in self.plan.image]
        told = {REPORT: pa.array([msgspec.json.encode(report)], pa.binary())}
        return self._batch(1, columns, told)

    def _batch(
        self, rows: int, columns: Sequence[pa.Array], told: Mapping[str, pa.Array]
    ) -> pa.RecordBatch:
        """Columns of the source, and of ours what there is to tell."""
        schema = rows_schema(self.plan.image, closes=self.deadline is not None)
        own = [schema.field(place) for place in range(len(columns), len(schema))]
        found = [told.get(field.name, pa.nulls(rows, field.type)) for field in own]
        return pa.RecordBatch.from_arrays([*columns, *found], schema=schema)


def _time_of(rules: SourceRules) -> Callable[[Changes, Message], int | None] | None:
    """How to read a message's time, where it has one."""
    return _stamp if rules.time == "kafka" else time_of(rules.time, rules.time_column)


def _stamp(_: Changes | None, record: Message) -> int | None:
    """Kafka's own timestamp, in epoch milliseconds."""
    kind, stamp = record.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else stamp


def _any_marked(marks: Callable[[Row], bool], changes: Changes) -> bool:
    """Whether a message brings a marked row; one that is taken back marks nothing, nor does one
    on which the marker fails."""
    for sign, row in changes.changes:
        with suppress(Failed):
            if sign > 0 and marks(row):
                return True
    return False


def _too_late(time: int) -> Rejected:
    return Rejected(f"{FUTURE}: {time} is beyond watermark.future_skew")


@contextmanager
def collector_off() -> Iterator[None]:
    """No cycles are made here, but hundreds of thousands of tuples: walking them again and again
    to find none would take a fifth of a task."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def rows_schema(columns: Sequence[Column], *, closes: bool = False) -> pa.Schema:
    """Columns of rows, and behind them ours."""
    own = [(POSITION, pa.int64()), (WEIGHT, pa.int64()), (REPORT, pa.binary())]
    if closes:
        own.append((LATE, pa.binary()))
    return pa.schema([*((column.name, arrow_type(column.type)) for column in columns), *own])


@lru_cache(maxsize=8)
def _decoder(
    rules: SourceRules, columns: tuple[Column, ...], used: tuple[Column, ...]
) -> MessageDecoder:
    return rules.messages.decoder(columns, rules.row(used))


@lru_cache(maxsize=8)
def _marks(rules: SourceRules, used: tuple[Column, ...]) -> Callable[[Row], bool] | None:
    return None if rules.marker is None else rules.marker.marks(rules.row(used))


def _outcomes(made: MessageDecoder, records: list[Message]) -> Iterator[Decoded]:
    """What each record is; a format that needs keys is given them."""
    values = map(Message.value, records)
    if isinstance(made, KeyedDecoder):
        return map(made.decode_keyed, values, map(Message.key, records))
    return map(made.decode, values)


@lru_cache(maxsize=8)
def layout_of(plan: Plan) -> TableLayout:
    """Program and layout of a plan, built once in a worker."""
    return TableLayout(Program(plan))


class SignedRows:
    """The used columns of a range's signed rows, as Arrow has them, batch by batch: objects a row
    live no longer than their batch."""

    def __init__(self, used: tuple[Column, ...]) -> None:
        self._used = used
        self._columns: list[list[pa.Array]] = [[] for _ in used]
        self.signs: list[np.ndarray[Any, np.dtype[np.int64]]] = []
        self.count = 0

    def add(self, changes: list[tuple[int, Row]]) -> None:
        if not changes:
            return
        signs, rows = zip(*changes, strict=True)
        columns = islice(zip(*rows, strict=True), len(self._used))  # a column of time stays here
        for arrays, values, column in zip(self._columns, columns, self._used, strict=True):
            arrays.append(to_arrow(values, column.type))
        self.signs.append(np.array(signs, np.int64))
        self.count += len(signs)

    def joined(self) -> tuple[list[pa.Array], np.ndarray[Any, np.dtype[np.int64]]]:
        """All columns, and the signs beside them."""
        return [pa.concat_arrays(arrays) for arrays in self._columns], np.concatenate(self.signs)


@dataclass(slots=True)
class _Range:
    """A range while it is being read."""

    task: DecodeTask
    number: int
    writer: str
    report: RangeReport = field(init=False)
    signed_rows: SignedRows = field(init=False)
    rejects: list[Reject] = field(default_factory=list)
    rejected_bytes: int = 0
    kept: list[tuple[Decoded, Message]] = field(default_factory=list)
    messages: Messages = field(default_factory=Messages)

    def __post_init__(self) -> None:
        planned = self.range
        self.report = RangeReport(task=self.number, start=planned.start)
        self.signed_rows = SignedRows(self.task.plan.image)

    @property
    def range(self) -> OffsetRange:
        return self.task.ranges[self.number]

    def take(self, records: list[Message]) -> None:
        """Decode some records."""
        task, report = self.task, self.report
        report.topic, report.partition = self.range.topic, self.range.partition
        outcomes = _outcomes(_decoder(task.rules, task.plan.columns, task.plan.image), records)
        changes: list[tuple[int, Row]] = []
        take = changes.extend
        keep = bool(task.failing)
        report.read += len(records)
        latest = NEVER if report.event_time_max is None else report.event_time_max
        horizon = FOR_EVER if task.horizon_ms is None else task.horizon_ms
        time_of, by_es = _time_of(task.rules), task.rules.time == "es"
        closes = task.deadline is not None
        marks = _marks(task.rules, task.plan.image)
        for record, decoded in zip(records, outcomes, strict=True):
            if keep:
                self.kept.append((decoded, record))
            elif type(decoded) is Changes:
                time = decoded.es if by_es else time_of(decoded, record) if time_of else None
                if time is None:
                    report.event_times_missing += 1
                elif time > latest:
                    if time > horizon:
                        self._reject(_too_late(time), record)
                        continue
                    latest = time
                if marks is not None and latest != NEVER and _any_marked(marks, decoded):
                    report.event_time_marked = latest
                report.decoded += 1
                take(decoded.changes)
                if closes:
                    self.messages.add(record.offset() or 0, len(decoded.changes))
            else:
                self._odd(decoded, record)
        self.signed_rows.add(changes)
        report.event_time_max = None if latest == NEVER else latest

    def finish(self) -> None:
        """End of the range: the rest of a second run, and the last rejects."""
        if self.kept:
            self._take_kept()
        self._write_rejects()
        self.report.rows = self.signed_rows.count

    def _odd(self, decoded: Decoded, record: Message) -> None:
        report = self.report
        if isinstance(decoded, Skipped):
            report.skipped += 1
        elif isinstance(decoded, Filtered):
            report.filtered += 1
        elif isinstance(decoded, Rejected):
            self._reject(decoded, record)
        elif isinstance(decoded, ColumnGone):
            place = f"{report.topic}/{report.partition} offset {record.offset()}"
            report.gone = report.gone or f"column {decoded.column}: {decoded.why} ({place})"
            report.skipped += 1
        else:
            raise TypeError(f"{decoded!r} is not an outcome of decoding")

    def _reject(self, why: Rejected, record: Message) -> None:
        report = self.report
        report.quarantined += 1
        reason = why.reason[:REASON_CHARACTERS_MAX]
        offset, value, stamp = record.offset() or 0, record.value(), _stamp(None, record)
        if report.first_reject is None:
            report.first_reject = (
                f"{report.topic}/{report.partition} offset {offset}: {reason} at {why.path}"
            )
        raw = None if value is None else value[:QUARANTINE_BYTES_MAX]
        size = 0 if value is None else len(value)
        time_us = None if stamp is None else stamp * 1_000
        place = self.range
        self.rejects.append(
            Reject(place.topic, place.partition, offset, time_us, reason, why.path, raw, size)
        )
        self.rejected_bytes += min(size, QUARANTINE_BYTES_MAX)
        if self.rejected_bytes >= QUARANTINE_FILE_BYTES:
            self._write_rejects()

    def _write_rejects(self) -> None:
        if not self.rejects:
            return
        task = self.task
        writer = f"{self.writer}-{len(self.report.quarantine)}"
        name = file_name(QUARANTINE, task.epoch, task.uuid, writer)
        table = layout_of(task.plan).quarantine_table(task.epoch, self.rejects)
        self.report.quarantine.append(write_file(task.root, name, table, durable=task.durable))
        self.rejects = []
        self.rejected_bytes = 0

    def _take_kept(self) -> None:
        """The second run of an epoch in which rows failed: find those rows by their positions,
        send every message that has one to quarantine whole, and take the others."""
        failing = self._failing_rows()
        images = bool(self.task.plan.primary_key)  # of which a retraction is never evaluated

        def evaluated(sign: int) -> bool:
            return sign > 0 or not images

        for decoded, record in self.kept:
            if not isinstance(decoded, Changes):
                self._odd(decoded, record)
                continue
            bad = [row for sign, row in decoded.changes if row in failing and evaluated(sign)]
            at = self._time(decoded, record)
            if bad:
                self._reject(Rejected(failing[bad[0]]), record)
            elif at is not None and self._beyond(decoded, record):
                self._reject(_too_late(at), record)
            else:
                self.report.decoded += 1
                self.signed_rows.add(decoded.changes)
                self.messages.add(record.offset() or 0, len(decoded.changes))
                if at is None:
                    self.report.event_times_missing += 1
                else:
                    latest = self.report.event_time_max
                    self.report.event_time_max = at if latest is None else max(at, latest)
                marks = _marks(self.task.rules, self.task.plan.image)
                if marks is not None and _any_marked(marks, decoded):
                    self.report.event_time_marked = self.report.event_time_max

    def _time(self, changes: Changes, record: Message) -> int | None:
        time_of = _time_of(self.task.rules)
        return None if time_of is None else time_of(changes, record)

    def _beyond(self, changes: Changes, record: Message) -> bool:
        """Whether a message's time is one that is not taken."""
        time, horizon = self._time(changes, record), self.task.horizon_ms
        return time is not None and horizon is not None and time > horizon

    def _failing_rows(self) -> dict[Row, str]:
        wanted = {at if at >= 0 else ~at: reason for at, reason in self.task.failing}
        position = self.number << RUNNING_BITS
        failing: dict[Row, str] = {}
        for decoded, record in self.kept:
            if isinstance(decoded, Changes) and not self._beyond(decoded, record):
                for _, row in decoded.changes:
                    if position in wanted:
                        failing[row] = f"{wanted[position]}; the row is {self._shown(row)}"
                    position += 1
        return failing

    def _shown(self, row: Sequence[object]) -> str:
        named = zip(self.task.plan.used, row, strict=False)  # a column of time may come behind
        shown = ", ".join(f"{column.name} = {value!r}" for column, value in named)
        return shown[: REASON_CHARACTERS_MAX // 2]
