"""Write the rejected messages of one range to quarantine files."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from jobs.core.values.change import Rejected
from jobs.edge.kafka.records import Record
from jobs.edge.table.epoch_files import Reject, layout_of
from jobs.edge.table.file_writer import AddedFile
from jobs.edge.tasks.decode_inputs import DecodeInputs
from jobs.edge.tasks.file_ranges import locate_line
from jobs.reading.parts import QUARANTINE
from schemas.limits import QUARANTINE_BYTES_MAX, QUARANTINE_FILE_BYTES, REASON_CHARACTERS_MAX
from schemas.table.epoch import TopicPartition

_TIME_MS_MAX = 253_402_300_799_999  # the end of the year 9999


class ViewRejects(msgspec.Struct, array_like=True):
    """The messages of a range that one view refused, because an expression of it fails."""

    view: int  # its number
    count: int
    files: list[AddedFile]
    first: str


@dataclass(slots=True)
class RejectWriter:
    """Writes rejected messages; starts a new file once the last is large enough."""

    target: DecodeInputs
    writer: str
    files: list[AddedFile] = field(default_factory=list)
    first: str | None = None  # where the first rejected message is, and why it was refused
    count: int = 0
    _pending: list[Reject] = field(default_factory=list)
    _bytes: int = 0

    def add(self, partition: TopicPartition, why: Rejected, record: Record) -> None:
        offset, stamp, _, value, _, size = record
        reason = locate_line(self.target.pieces or (), partition.topic, offset) + why.reason
        reason = reason[:REASON_CHARACTERS_MAX]
        if self.first is None:
            self.first = (
                f"{partition.topic}/{partition.partition} offset {offset}: {reason} at {why.path}"
            )
        raw = None if value is None else value[:QUARANTINE_BYTES_MAX]
        # A producer may stamp anything, such as nanoseconds; no reader could show such a time.
        has_time = stamp is not None and 0 <= stamp <= _TIME_MS_MAX
        time_us = stamp * 1_000 if stamp is not None and has_time else None
        source = self.target.plan.source or None
        self._pending.append(
            Reject(*partition, offset, time_us, reason, why.path, raw, size, why.code, source)
        )
        self.count += 1
        self._bytes += min(size, QUARANTINE_BYTES_MAX)
        if self._bytes >= QUARANTINE_FILE_BYTES:
            self.write()

    def write(self) -> None:
        """Write the messages that are not in a file yet."""
        if not self._pending:
            return
        target, attempt = self.target, self.target.attempt
        table = layout_of(target.plan).quarantine_table(attempt.epoch, self._pending)
        writer = f"{self.writer}-{len(self.files)}"
        self.files.append(attempt.write(target.root, QUARANTINE, writer, table))
        self._pending, self._bytes = [], 0
