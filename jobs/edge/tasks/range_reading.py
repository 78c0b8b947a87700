"""Decode the records of one range into signed rows and report their counts.

records ─┬ usual ones, scanned together ──┬─► signed rows
         └ unusual ones, decoded one by one ──┤
                                          └─► rejects ─► a quarantine file of this task
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa

from jobs.core.formats.registry import MessageDecoder
from jobs.core.formats.scanned import Array, Scanned, Scanner
from jobs.core.job.time_rules import MessagesInOrder
from jobs.core.kernels.codes import GOOD, NO_TIME, UNUSUAL
from jobs.core.kernels.foreign_messages import NO_STAMP
from jobs.core.plan.tree import Column
from jobs.core.rows.consolidate import RUNNING_BITS
from jobs.core.rows.dedupe import number_partition
from jobs.core.rows.row_time import TimeReader
from jobs.core.rows.source_order import OrderWatch, as_stamps
from jobs.core.rows.truncations import Truncation
from jobs.core.time.custom_generator import GeneratorFailed
from jobs.core.time.rows_in_order import PartitionStart
from jobs.core.values.change import (
    Changes,
    ColumnGone,
    Decoded,
    Filtered,
    RejectCode,
    Rejected,
    Row,
    Skipped,
    Truncated,
)
from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.kafka.records import Record, Records
from jobs.edge.process.generator_class import make_allowed
from jobs.edge.rows.range_rows import RangeRows
from jobs.edge.rows.scanned_columns import scanned_to_arrow
from jobs.edge.rows.signed_rows import SignedRows
from jobs.edge.tasks.decode_inputs import (
    DecodeInputs,
    TopicRules,
    decode_each,
    decoder_of,
    scanner_of,
)
from jobs.edge.tasks.range_report import RangeReport
from jobs.edge.tasks.reject_writer import RejectWriter
from schemas.limits import PIECE_MESSAGES, SCAN_BYTES_MAX, SCAN_UNUSUAL_PART_MAX
from schemas.spec.source import FORMATS_WITHOUT_TABLES
from schemas.table.epoch import name_topic

_MICROS_A_MILLISECOND = 1_000
NEVER, FOR_EVER = -(1 << 63) - 1, 1 << 63


class RangeTooLarge(Exception):
    """The rows of a range have more bytes than a task may hold; read it in parts."""


@dataclass(slots=True)
class RangeReader:
    """Decodes the records of one range."""

    task: DecodeInputs
    number: int
    writer: str
    rules: TopicRules = field(init=False)
    report: RangeReport = field(init=False)
    signed_rows: SignedRows = field(init=False)
    rejects: RejectWriter = field(init=False)
    watermarks: list[int] = field(default_factory=list)  # before each row, if checked in order
    in_order: MessagesInOrder | None = field(init=False, default=None)
    order: OrderWatch | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        planned = self.range
        self.rules = self.task.rules.of_topic(planned.topic)
        self.report = RangeReport(number=self.number, source=planned.source, start=planned.start)
        if self.rules.messages.format not in FORMATS_WITHOUT_TABLES:
            memory = self.task.memories[self.number] if self.task.memories else None
            self.order = OrderWatch(self.rules.messages.format, memory, planned.start)
        self.rejects = RejectWriter(self.task, self.writer)
        self.signed_rows = SignedRows(self.task.plan.image)
        start = self.task.starts[self.number] if self.task.starts else None
        if start is not None:
            self.in_order = _in_order(self.task, self.rules, start)

    @property
    def range(self) -> OffsetRange:
        return self.task.ranges[self.number]

    @property
    def partition_number(self) -> int:
        """The number of the partition; each source has its own, also of a topic that two read."""
        topic = name_topic(self.range.source, self.range.topic)
        return number_partition(topic, self.range.partition)

    def take(self, records: Records) -> None:
        """Decode some records; raise RangeTooLarge if the rows need too many bytes."""
        if self.report.topic is None and len(records):  # a partition's first record is its oldest
            self.report.appended_ms = records[0].timestamp_ms
        self.report.topic, self.report.partition = self.range.topic, self.range.partition
        self.report.read += len(records)
        plan, registry = self.task.plan, self.task.registry
        decoder = decoder_of(self.rules, plan.columns, plan.image, registry)
        scanner = None
        if self.rules.times.scannable:
            scanner = scanner_of(self.rules, self.task.plan.columns, self.task.plan.image)
        for start in range(0, len(records), PIECE_MESSAGES):
            piece = records.between(start, min(start + PIECE_MESSAGES, len(records)))
            if scanner is not None and self._take_scanned(scanner, decoder, piece):
                continue
            self._take_each(decode_each(decoder, piece))
            if self.signed_rows.bytes > self.task.attempt.bytes_max:
                raise RangeTooLarge

    @property
    def horizon(self) -> int | None:
        """The latest time that a row of this topic may have."""
        return self.task.horizons.get(self.range.topic)

    @property
    def keys_change(self) -> bool:
        """Whether the task keeps last images of a source whose updates may change a key."""
        return bool(self.task.plan.primary_key) and self.rules.messages.keys_change

    def _take_scanned(self, scanner: Scanner, decoder: MessageDecoder, records: Records) -> bool:
        """Scan some records, and decode the unusual ones in order among the others.

        Return False, without a row taken, if too many are unusual, such as those with labels."""
        large = records.bytes_of_values > SCAN_BYTES_MAX
        scanned = None if large else scanner.scan_buffer(records.buffer, records.starts)
        times = None if scanned is None else _times_of(scanned, records, self.rules)
        unusual = [] if scanned is None else scanned.outcomes == UNUSUAL
        if times is not None and self.horizon is not None:
            unusual = unusual | (times > self.horizon)
        if scanned is None or np.count_nonzero(unusual) > len(records) * SCAN_UNUSUAL_PART_MAX:
            return False
        columns = [scanned_to_arrow(column) for column in scanned.columns]
        start = 0
        for number in np.flatnonzero(unusual).tolist():
            self._add_scanned(scanned, columns, times, records.between(start, number), start)
            self._take_each(decode_each(decoder, records.between(number, number + 1)))
            start = number + 1
        self._add_scanned(scanned, columns, times, records.between(start, len(records)), start)
        return True

    def _add_scanned(
        self,
        scanned: Scanned,
        columns: list[pa.Array],
        times: Array | None,
        records: Records,
        first: int,
    ) -> None:
        """Add the rows, times and counts of usual messages, of which `first` is the first."""
        last = first + len(records)
        is_good = scanned.outcomes[first:last] == GOOD
        good = int(np.count_nonzero(is_good))
        self.report.decoded += good
        self.report.filtered += len(records) - good
        self.report.scanned += len(records)
        start, end = np.searchsorted(scanned.owners, (first, last)).tolist()
        rows = [column.slice(start, end - start) for column in columns[: len(self.task.plan.image)]]
        self.signed_rows.add_scanned(rows, scanned.signs[start:end].astype(np.int64))
        if self.task.needs_messages or self.keys_change:
            owners = scanned.owners[start:end] - first
            self.signed_rows.add_messages(records.offsets[owners], scanned.es[first:last][owners])
        if self.order is not None:
            at = np.flatnonzero(is_good)
            ids, es = scanned.ids[first:last][at], scanned.es[first:last][at]
            sizes = records.value_bytes[at]
            self.order.observe(records.offsets[at], ids, es, sizes, lambda n: records.value(at[n]))
        known = 0
        if times is not None and good:
            of_good = times[first:last][is_good]
            known = int(np.count_nonzero(of_good != NO_TIME))
            if known:
                self._see_time(int(of_good.max()))
        self.report.event_times_missing += good - known

    def _see_time(self, time: int) -> None:
        latest = self.report.event_time_max
        self.report.event_time_max = time if latest is None else max(time, latest)

    def _take_each(self, messages: Iterable[tuple[Decoded, Record]]) -> None:
        """Take decoded messages one by one: their rows, their times, their counts."""
        task, report = self.task, self.report
        changes: list[tuple[int, Row]] = []
        take = changes.extend
        latest = NEVER if report.event_time_max is None else report.event_time_max
        horizon = FOR_EVER if self.horizon is None else self.horizon
        time_of = _time_of(self.rules, task.plan.image)
        by_es = self.rules.times.source == "es" and self.rules.times.where is None
        keeps_messages = task.needs_messages or self.keys_change
        sent: list[tuple[Record, int | None, int | None]] = []
        of_rows: list[tuple[int, int]] = []
        for decoded, record in messages:
            if type(decoded) is Changes:
                time = (
                    decoded.es
                    if by_es
                    else time_of(decoded, record.timestamp_ms)
                    if time_of
                    else None
                )
                if time is None:
                    report.event_times_missing += 1
                elif time > latest:
                    if time > horizon:
                        self.rejects.add(self.range.topic_partition, _reject_future(time), record)
                        continue
                    latest = time
                if self.in_order is not None:
                    order = self.in_order
                    try:
                        before = [
                            order.take(sign, row, time, record.timestamp_ms)
                            for sign, row in decoded.changes
                        ]
                    except GeneratorFailed as failed:
                        place = f"{report.topic}/{report.partition} offset {record.offset}"
                        raise GeneratorFailed(f"{failed} (read from {place})") from failed
                    self.watermarks += before
                report.decoded += 1
                take(decoded.changes)
                if self.order is not None:
                    sent.append((record, decoded.id, decoded.es))
                if keeps_messages:
                    es = NO_TIME if decoded.es is None else decoded.es
                    of_rows += [(record.offset, es)] * len(decoded.changes)
            else:
                self._count_other(decoded, record, self.signed_rows.count + len(changes))
        if self.order is not None and sent:
            own, ids, times = zip(*sent, strict=True)
            offsets = as_stamps(each.offset for each in own)
            size = as_stamps(each.value_bytes for each in own)
            self.order.observe(
                offsets, as_stamps(ids), as_stamps(times), size, lambda at: own[at].value or b""
            )
        self.signed_rows.add(changes)
        if of_rows:
            self.signed_rows.add_messages(*np.array(of_rows, np.int64).T)
        report.event_time_max = None if latest == NEVER else latest

    def rows(self) -> RangeRows | None:
        """Return all rows so far; None if there are none."""
        return self.signed_rows.concatenate() if self.signed_rows.signs else None

    def finish(self) -> None:
        """End the range: write the last rejects, and complete the report."""
        self.rejects.write()
        self.report.quarantined, self.report.first_reject = self.rejects.count, self.rejects.first
        self.report.quarantine = self.rejects.files
        self.report.rows += self.signed_rows.count
        self.report.damaged_texts = self.signed_rows.count_damaged_texts()
        self.report.order = None if self.order is None else self.order.finish()
        if self.in_order is not None:
            self.report.generator = self.in_order.rows.generator.snapshot()

    def _locate(self, record: Record) -> str:
        return f"{self.report.topic}/{self.report.partition} offset {record.offset}"

    def _count_other(self, decoded: Decoded, record: Record, rows: int) -> None:
        """Count a record without changes, or reject it; so many rows are before it."""
        report = self.report
        if isinstance(decoded, Skipped):
            report.skipped += 1
        elif isinstance(decoded, Filtered):
            report.filtered += 1
        elif isinstance(decoded, Rejected):
            self.rejects.add(self.range.topic_partition, decoded, record)
        elif isinstance(decoded, Truncated) and self.rules.messages.on_truncate == "quarantine":
            self.rejects.add(self.range.topic_partition, decoded.rejected, record)
        elif isinstance(decoded, Truncated):
            self._take_truncate(decoded, record, rows)
            report.skipped += 1
        elif isinstance(decoded, ColumnGone):
            position = self._locate(record)
            report.gone = report.gone or f"column {decoded.column}: {decoded.why} ({position})"
            report.skipped += 1
        else:
            raise TypeError(f"a decoder returned {decoded!r}, which is no Decoded")

    def _take_truncate(self, found: Truncated, record: Record, rows: int) -> None:
        """Report a TRUNCATE as one to apply, or as a reason to stop."""
        report, applies = self.report, self.rules.messages.on_truncate == "apply"
        if applies and found.es is not None:
            partition = self.partition_number
            position = (self.number << RUNNING_BITS) + rows
            report.truncations.append(Truncation.of(partition, found.es, found.ts, position))
            return
        place = f"topic {report.topic}, partition {report.partition}, offset {record.offset}"
        why = found.why_untimed if applies else found.why_stopped
        report.truncated = report.truncated or why(place)


@lru_cache(maxsize=8)
def _time_of(rules: TopicRules, used: tuple[Column, ...]) -> TimeReader | None:
    """Return the function that reads a message's time; None if messages have none."""
    return rules.times.message_time(rules.row(used))


def _in_order(task: DecodeInputs, rules: TopicRules, start: PartitionStart) -> MessagesInOrder:
    """Return what gives the rows of a range to the generator of its partition."""
    generator = make_allowed(rules.times.watermark)
    row = rules.row(task.plan.image)
    return rules.times.in_row_order(row, generator, start, task.now_ms)


def _times_of(scanned: Scanned, records: Records, rules: TopicRules) -> Array | None:
    """Return the times of scanned messages, NO_TIME where one has none; None if no message has."""
    if rules.times.column is not None:
        column, unit = scanned.columns[-1], _MICROS_A_MILLISECOND
        if rules.times.column.type.integer:
            unit = 1
        return scanned.latest_of_rows(column.numbers // unit, column.valid)
    if rules.times.source == "kafka":
        return np.where(records.stamps == NO_STAMP, NO_TIME, records.stamps)
    return {"es": scanned.es, "ts": scanned.ts}.get(rules.times.source)


def _reject_future(time: int) -> Rejected:
    reason = f"the row's time lies in the future: {time} is beyond watermark.future_skew"
    return Rejected(reason, code=RejectCode.FUTURE)
