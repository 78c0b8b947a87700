"""Range reading: the records of one range as signed rows, with a report of what they were.

records ─┬ many plain ones at once ─┬─► signed rows
         └ else one by one ─────────┤
                                    └─► rejects ─► a quarantine file of this task
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import repeat
from typing import Protocol

import msgspec
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from jobs.core.formats.canal_batch import PlainMessages, TogetherDecoder
from jobs.core.formats.registry import KeyedDecoder, MessageDecoder, MessageRules
from jobs.core.plan.tree import Column, Plan
from jobs.core.rows.consolidate import RUNNING_BITS
from jobs.core.rows.row_time import time_of
from jobs.core.sql.marker import Marker
from jobs.core.values.change import Changes, ColumnGone, Decoded, Filtered, Rejected, Row, Skipped
from jobs.core.values.rounding import Failed
from jobs.edge.kafka.ranges import OffsetRange
from jobs.edge.rows.columns import numbered
from jobs.edge.rows.late_rows import Deadline, Messages
from jobs.edge.rows.signed_rows import SignedRows
from jobs.edge.table.epoch_files import (
    QUARANTINE,
    AddedFile,
    Reject,
    file_name,
    layout_of,
    write_file,
)
from schemas.limits import (
    ODD_PIECES_MAX,
    PLAIN_MESSAGES_AT_ONCE,
    QUARANTINE_BYTES_MAX,
    QUARANTINE_FILE_BYTES,
    REASON_CHARACTERS_MAX,
)
from schemas.table.object_path import TablePath

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
    too_large: bool = False  # its rows have more bytes than a task may hold; none was sent on
    event_time_max: int | None = None
    event_time_marked: int | None = None  # the greatest one up to the last marked row
    event_times_missing: int = 0
    gone: str | None = None  # a declared column that the source no longer has
    first_reject: str | None = None
    quarantine: list[AddedFile] = []
    seconds: float = 0.0  # that reading and decoding took


class Asked(Protocol):
    """What a task is asked to read, and how."""

    @property
    def plan(self) -> Plan: ...

    @property
    def rules(self) -> SourceRules: ...

    @property
    def ranges(self) -> tuple[OffsetRange, ...]: ...

    @property
    def root(self) -> TablePath: ...

    @property
    def epoch(self) -> int: ...

    @property
    def uuid(self) -> str: ...

    @property
    def durable(self) -> bool: ...

    @property
    def horizon_ms(self) -> int | None: ...

    @property
    def deadline(self) -> Deadline | None: ...

    @property
    def failing(self) -> tuple[tuple[int, str], ...]: ...

    @property
    def bytes_max(self) -> int: ...


class RangeTooLarge(Exception):
    """The rows of a range have more bytes than a task may hold; it has to be read in parts."""


@dataclass(slots=True)
class RangeReading:
    """A range while it is being read."""

    task: Asked
    number: int
    writer: str
    report: RangeReport = field(init=False)
    signed_rows: SignedRows = field(init=False)
    rejects: list[Reject] = field(default_factory=list)
    rejected_bytes: int = 0
    kept: list[tuple[Decoded, Message]] = field(default_factory=list)
    messages: Messages = field(default_factory=Messages)
    odd_pieces: int = 0  # how many pieces are not tried together, now, and after the next odd one
    odd_pieces_next: int = 1

    def __post_init__(self) -> None:
        planned = self.range
        self.report = RangeReport(task=self.number, start=planned.start)
        self.signed_rows = SignedRows(self.task.plan.image)

    @property
    def range(self) -> OffsetRange:
        return self.task.ranges[self.number]

    def take(self, records: list[Message]) -> None:
        """Decode some records."""
        self.report.topic, self.report.partition = self.range.topic, self.range.partition
        self.report.read += len(records)
        decoder = _decoder(self.task.rules, self.task.plan.columns, self.task.plan.image)
        together = decoder if self._nothing_more else None
        for start in range(0, len(records), PLAIN_MESSAGES_AT_ONCE):
            piece = records[start : start + PLAIN_MESSAGES_AT_ONCE]
            if not (isinstance(together, TogetherDecoder) and self._take_together(together, piece)):
                self._take_each(decoder, piece)
            if self.signed_rows.bytes > self.task.bytes_max:
                raise RangeTooLarge

    @property
    def _nothing_more(self) -> bool:
        """Whether nothing has to be known of a single message but its rows and its own time."""
        task, rules = self.task, self.task.rules
        return (
            rules.time in ("es", "ts", "ingestion") and rules.marker is None
            and task.deadline is None and not task.failing
        )  # fmt: skip

    def _take_together(self, decoder: TogetherDecoder, records: list[Message]) -> bool:
        """All of them at once, if they are plain. Where that is seldom so it is seldom tried."""
        if self.odd_pieces:
            self.odd_pieces -= 1
            return False
        plain = decoder.together(list(map(Message.value, records)))
        if plain is None or not self._timed(plain):
            self.odd_pieces = self.odd_pieces_next
            self.odd_pieces_next = min(2 * self.odd_pieces_next, ODD_PIECES_MAX)
            return False
        self.odd_pieces_next = 1
        self.report.decoded += plain.count
        self.report.filtered += plain.filtered
        self.signed_rows.add_plain(plain)
        return True

    def _timed(self, plain: PlainMessages) -> bool:
        """Take the messages' times, if none of them is too late to be one."""
        times = {"es": plain.es, "ts": plain.ts}.get(self.task.rules.time, [])
        known = [time for time in times if time is not None]
        latest = max(known, default=None)
        if latest is not None:
            if self.task.horizon_ms is not None and latest > self.task.horizon_ms:
                return False
            self._reached(latest)
        self.report.event_times_missing += plain.count - len(known)
        return True

    def _reached(self, time: int) -> None:
        latest = self.report.event_time_max
        self.report.event_time_max = time if latest is None else max(time, latest)

    def _take_each(self, decoder: MessageDecoder, records: list[Message]) -> None:
        task, report = self.task, self.report
        outcomes = _outcomes(decoder, records)
        changes: list[tuple[int, Row]] = []
        take = changes.extend
        keep = bool(task.failing)
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
        failing = self._failing_messages()
        for place, (decoded, record) in enumerate(self.kept):
            if not isinstance(decoded, Changes):
                self._odd(decoded, record)
                continue
            at = self._time(decoded, record)
            if place in failing:
                self._reject(Rejected(failing[place]), record)
            elif at is not None and self._beyond(decoded, record):
                self._reject(_too_late(at), record)
            else:
                self.report.decoded += 1
                self.signed_rows.add(decoded.changes)
                self.messages.add(record.offset() or 0, len(decoded.changes))
                if at is None:
                    self.report.event_times_missing += 1
                else:
                    self._reached(at)
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

    def _failing_messages(self) -> dict[int, str]:
        """Return why messages are refused, by their places in `kept`.

        Positions name one of several equal rows, so every message with a row equal to it is
        refused. Rows are equal as in the first run: in the columns of the query, not in those
        that only tell the row's time.
        """
        changes: list[tuple[int, Row]] = []
        owners: list[int] = []
        for place, (decoded, record) in enumerate(self.kept):
            if isinstance(decoded, Changes) and not self._beyond(decoded, record):
                changes += decoded.changes
                owners += repeat(place, len(decoded.changes))
        rows = SignedRows(self.task.plan.image)
        rows.add(changes)
        numbers = numbered(rows.joined()[0], rows.count).tolist() if changes else []
        start = self.number << RUNNING_BITS
        reasons: dict[int, str] = {}
        for position, reason in self.task.failing:
            at = (position if position >= 0 else ~position) - start
            if 0 <= at < len(numbers):
                reasons[numbers[at]] = f"{reason}; the row is {self._shown(changes[at][1])}"
        images = bool(self.task.plan.primary_key)  # of which a retraction is never evaluated
        refused: dict[int, str] = {}
        for (sign, _), number, owner in zip(changes, numbers, owners, strict=True):
            if number in reasons and (sign > 0 or not images):
                refused.setdefault(owner, reasons[number])
        return refused

    def _shown(self, row: Sequence[object]) -> str:
        named = zip(self.task.plan.used, row, strict=False)  # a column of time may come behind
        shown = ", ".join(f"{column.name} = {value!r}" for column, value in named)
        return shown[: REASON_CHARACTERS_MAX // 2]


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
