"""The decode task: one range of a Kafka partition becomes weighted rows and one report.

    Kafka records ─► decode ─► consolidate ─► rows: used columns, __position, __weight
                        │                └──► one row with __report (JSON) and nothing else
                        └► rejects ─► a quarantine file of this task

It runs inside mapInArrow. The report is an ordinary row of the result, so it comes exactly once
per task that Spark counted as done, whatever was tried again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice, pairwise, repeat
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from jobs.core.change import Changes, ColumnGone, Decoded, Filtered, Rejected, Row, Skipped
from jobs.core.consolidate import RUNNING_BITS, consolidated, group_places
from jobs.core.formats import MessageDecoder, decoder
from jobs.core.plan import Column, Plan
from jobs.core.program import Program
from jobs.core.row_time import TimeOf, time_of
from jobs.core.values import TimestampFormat
from jobs.edge.columns import arrow_type, numbered, to_arrow
from jobs.edge.epoch_files import QUARANTINE, AddedFile, Reject, TableLayout, file_name, write_file
from jobs.edge.failpoints import failpoint
from jobs.edge.ranges import OffsetRange
from schemas.limits import QUARANTINE_BYTES_MAX, QUARANTINE_FILE_BYTES, REASON_CHARACTERS_MAX

POSITION, WEIGHT, REPORT = "__position", "__weight", "__report"
FUTURE = "the row's time lies in the future"  # how that reason begins; only the clock knows it
NEVER, FOR_EVER = -(1 << 63) - 1, 1 << 63
SOURCE_COLUMNS = ("value", "topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class SourceRules:
    """How the messages of a source are read; what the job spec says of it."""

    format: str
    database: str | None = None
    table: str | None = None
    timestamp_format: TimestampFormat = "sql"
    missing_is_null: bool = False
    time: str = "es"  # or ts, kafka, ingestion; see core.row_time
    time_column: Column | None = None


class RangeReport(msgspec.Struct, kw_only=True):
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
    bytes_max: int = 0  # the largest message
    event_time_max: int | None = None
    event_times_missing: int = 0
    gone: str | None = None  # a declared column that the source no longer has
    first_reject: str | None = None
    quarantine: list[AddedFile] = []


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """The function of the map stage; a value, so that it travels to the workers."""

    plan: Plan
    rules: SourceRules
    ranges: tuple[OffsetRange, ...]
    root: Path
    epoch: int
    uuid: str
    durable: bool = False
    horizon_ms: int | None = None  # a row of a later time is quarantined
    # Rows whose expressions failed the first time: their positions, and why.
    failing: tuple[tuple[int, str], ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with collector_off():
            yield from self._decoded(batches)

    def _decoded(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        failpoint("decode_task")
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        attempt = context.taskAttemptId() if context else 0
        run = _Range(self, task, f"m{attempt}")
        for batch in batches:
            run.take(batch)
        run.finish()
        if run.signed_rows.signs:
            yield self._weighted(run)
        yield self._reported(run.report)

    def _weighted(self, run: _Range) -> pa.RecordBatch:
        columns, signs = run.signed_rows.joined()
        places = group_places(self.plan)
        groups = None if places is None else numbered([columns[i] for i in places], len(signs))
        numbers = numbered(columns, len(signs))
        weighted = consolidated(run.ordinal, numbers, signs, groups)
        run.report.shipped = len(weighted.places)
        shipped = pa.array(weighted.places)
        return pa.RecordBatch.from_arrays(
            [
                *(column.take(shipped) for column in columns),
                pa.array(weighted.positions),
                pa.array(weighted.weights),
                pa.nulls(len(shipped), pa.binary()),
            ],
            schema=output_schema(self.plan),
        )

    def _reported(self, report: RangeReport) -> pa.RecordBatch:
        schema = output_schema(self.plan)
        arrays = [pa.nulls(1, column.type) for column in schema]
        arrays[-1] = pa.array([msgspec.json.encode(report)], pa.binary())
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def messages_of(column: pa.Array) -> list[bytes | None]:
    """The values of binary records; cut out of Arrow's buffer eight times faster than Arrow's own
    way, which makes a scalar of each first."""
    if column.type != pa.binary():
        return column.to_pylist()  # type: ignore[no-any-return]
    _, ends, data = column.buffers()
    if data is None:
        return column.to_pylist()  # type: ignore[no-any-return]
    places = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
    low, high = int(places[0]), int(places[-1])
    text = data[low:high].to_pybytes()
    cuts = (places - low).tolist()
    values: list[bytes | None] = [text[a:b] for a, b in pairwise(cuts)]
    if column.null_count:
        for index in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            values[index] = None
    return values


def _time_of(rules: SourceRules) -> TimeOf | None:
    return time_of(rules.time, rules.time_column)


def _stamps(times: pa.Array) -> list[int | None]:
    """Kafka's own timestamps in milliseconds."""
    return [None if micros is None else micros // 1_000 for micros in times.to_pylist()]


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


def output_schema(plan: Plan) -> pa.Schema:
    own = [(POSITION, pa.int64()), (WEIGHT, pa.int64()), (REPORT, pa.binary())]
    return pa.schema([*((column.name, arrow_type(column.type)) for column in plan.used), *own])


@lru_cache(maxsize=8)
def _decoder(
    rules: SourceRules, columns: tuple[Column, ...], used: tuple[Column, ...]
) -> MessageDecoder:
    """Rows have the used columns, and behind them the one that tells their time."""
    return decoder(
        rules.format,
        columns,
        used if rules.time_column is None else (*used, rules.time_column),
        database=rules.database,
        table=rules.table,
        timestamp_format=rules.timestamp_format,
        missing_is_null=rules.missing_is_null,
    )


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
    ordinal: int = -1
    range: OffsetRange | None = None
    rejects: list[Reject] = field(default_factory=list)
    rejected_bytes: int = 0
    kept: list[tuple[Decoded, bytes | None, int, int | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.report = RangeReport(task=self.number)
        self.signed_rows = SignedRows(self.task.plan.used)

    def take(self, batch: pa.RecordBatch) -> None:
        """Decode one batch of records."""
        if batch.num_rows == 0:
            return
        if self.range is None:
            self._begin(batch)
        task, report = self.task, self.report
        decode = _decoder(task.rules, task.plan.columns, task.plan.used).decode
        values = messages_of(batch.column("value"))
        offsets = batch.column("offset")
        times = batch.column("timestamp").view(pa.int64())
        changes: list[tuple[int, Row]] = []
        take = changes.extend
        keep = bool(task.failing)
        report.read += len(values)
        largest = pc.max(pc.binary_length(batch.column("value"))).as_py()
        report.bytes_max = max(report.bytes_max, largest or 0)
        latest = NEVER if report.event_time_max is None else report.event_time_max
        horizon = FOR_EVER if task.horizon_ms is None else task.horizon_ms
        time_of, by_es = _time_of(task.rules), task.rules.time == "es"
        stamps = _stamps(times) if task.rules.time == "kafka" else repeat(None, len(values))
        for index, (value, stamp) in enumerate(zip(values, stamps, strict=True)):
            decoded = decode(value)
            if keep:
                self.kept.append((decoded, value, offsets[index].as_py(), times[index].as_py()))
            elif type(decoded) is Changes:
                time = decoded.es if by_es else time_of(decoded, stamp) if time_of else None
                if time is None:
                    report.event_times_missing += 1
                elif time > latest:
                    if time > horizon:
                        self._reject(
                            _too_late(time), value, offsets[index].as_py(), times[index].as_py()
                        )
                        continue
                    latest = time
                report.decoded += 1
                take(decoded.changes)
            else:
                self._odd(decoded, value, offsets[index].as_py(), times[index].as_py())
        self.signed_rows.add(changes)
        report.event_time_max = None if latest == NEVER else latest

    def finish(self) -> None:
        """End of the range: the rest of a second run, and the last rejects."""
        if self.kept:
            self._take_kept()
        self._write_rejects()
        self.report.rows = self.signed_rows.count

    def _begin(self, batch: pa.RecordBatch) -> None:
        topic = batch.column("topic")[0].as_py()
        partition = batch.column("partition")[0].as_py()
        offset = batch.column("offset")[0].as_py()
        for ordinal, planned in enumerate(self.task.ranges):
            same = (planned.topic, planned.partition) == (topic, partition)
            if same and planned.start <= offset < planned.end:
                self.range = planned
                self.ordinal = ordinal
                self.report.topic, self.report.partition = topic, partition
                self.report.start = planned.start
                return
        raise ValueError(
            f"a record of {topic}/{partition} at offset {offset} is in none of the planned ranges "
            f"{', '.join(map(str, self.task.ranges))}"
        )

    def _odd(self, decoded: Decoded, value: bytes | None, offset: int, time: int | None) -> None:
        report = self.report
        if isinstance(decoded, Skipped):
            report.skipped += 1
        elif isinstance(decoded, Filtered):
            report.filtered += 1
        elif isinstance(decoded, Rejected):
            self._reject(decoded, value, offset, time)
        elif isinstance(decoded, ColumnGone):
            place = f"{report.topic}/{report.partition} offset {offset}"
            report.gone = report.gone or f"column {decoded.column}: {decoded.why} ({place})"
            report.skipped += 1
        else:
            raise TypeError(f"{decoded!r} is not an outcome of decoding")

    def _reject(self, why: Rejected, value: bytes | None, offset: int, time: int | None) -> None:
        report = self.report
        report.quarantined += 1
        reason = why.reason[:REASON_CHARACTERS_MAX]
        if report.first_reject is None:
            report.first_reject = (
                f"{report.topic}/{report.partition} offset {offset}: {reason} at {why.path}"
            )
        raw = None if value is None else value[:QUARANTINE_BYTES_MAX]
        size = 0 if value is None else len(value)
        assert self.range is not None
        self.rejects.append(
            Reject(
                self.range.topic, self.range.partition, offset, time, reason, why.path, raw, size
            )
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
        for decoded, value, offset, time in self.kept:
            if not isinstance(decoded, Changes):
                self._odd(decoded, value, offset, time)
                continue
            bad = [row for _, row in decoded.changes if row in failing]
            at = self._time(decoded, time)
            if bad:
                self._reject(Rejected(failing[bad[0]]), value, offset, time)
            elif at is not None and self._beyond(decoded, time):
                self._reject(_too_late(at), value, offset, time)
            else:
                self.report.decoded += 1
                self.signed_rows.add(decoded.changes)
                if at is None:
                    self.report.event_times_missing += 1
                else:
                    latest = self.report.event_time_max
                    self.report.event_time_max = at if latest is None else max(at, latest)

    def _time(self, changes: Changes, stamp_us: int | None) -> int | None:
        time_of = _time_of(self.task.rules)
        stamp = None if stamp_us is None else stamp_us // 1_000
        return None if time_of is None else time_of(changes, stamp)

    def _beyond(self, changes: Changes, stamp_us: int | None) -> bool:
        """Whether a message's time is one that is not taken."""
        time, horizon = self._time(changes, stamp_us), self.task.horizon_ms
        return time is not None and horizon is not None and time > horizon

    def _failing_rows(self) -> dict[Row, str]:
        wanted = {at if at >= 0 else ~at: reason for at, reason in self.task.failing}
        position = self.ordinal << RUNNING_BITS
        failing: dict[Row, str] = {}
        for decoded, _, _, time in self.kept:
            if isinstance(decoded, Changes) and not self._beyond(decoded, time):
                for _, row in decoded.changes:
                    if position in wanted:
                        failing[row] = f"{wanted[position]}; the row is {self._shown(row)}"
                    position += 1
        return failing

    def _shown(self, row: Sequence[object]) -> str:
        named = zip(self.task.plan.used, row, strict=False)  # a column of time may come behind
        shown = ", ".join(f"{column.name} = {value!r}" for column, value in named)
        return shown[: REASON_CHARACTERS_MAX // 2]
