"""The lines between a job's driver and its publisher process, and the progress it leaves in Kafka.

    driver  ── Configuration, EpochToPublish, ..., {"stop": true} ──►  publisher
            ◄── {"ready": ..}, {"published": ..}, {"fatal": ..} ─────
    publisher ── Progress ──► <topic>-progress, in the transaction of the records it is about

One JSON object a line. The end of the driver's lines without a stop means that the driver is
gone: nothing more is committed.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from schemas import limits
from schemas.table.changelog import SinkFormat

STOP_LINE = b'{"stop":true}\n'


class ResultColumns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names and SQL types: the group's columns in order, and the row's in SELECT order."""

    group: list[tuple[str, str]]
    output: list[tuple[str, str]]
    window_end: tuple[str, str] | None = None


class Configuration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line: what is published where, by whom."""

    job: str
    table: str = ""  # Delta's id of the job's table, so that jobs of one name are told apart
    newest: int = -1  # the epoch that the table stands at
    generation: int  # of the writer; the higher one is right where two meet
    connection: dict[str, str]  # librdkafka's options
    topic: str
    format: SinkFormat
    partitions: int
    delivery: Literal["exactly_once", "at_least_once"]
    columns: ResultColumns
    transactional_id: str
    topic_id: str | None = None  # None: the topic may be created, and is what it is
    transaction_records: int = limits.TRANSACTION_RECORDS_MAX


class EpochToPublish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A committed epoch: its changelog files, and what is said once its rows are out."""

    epoch: int
    uuid: str = ""
    files: list[str]  # absolute paths
    rows: int
    watermark: int | None = None
    status: str = "active"
    offsets: dict[str, Any] = {}
    committed_ms: int | None = None  # when it was committed; the publisher's clock where absent


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the topic goes. Until an epoch is `complete`, what follows from its end (watermark,
    status, offsets) is still that of the epoch before it: results first, watermark after."""

    epoch: int | None = None
    seq: int | None = None
    complete: bool = True
    watermark: int | None = None
    status: str = "active"
    offsets: dict[str, Any] = {}
    generation: int = 0
    table: str = ""  # whose epochs these are; retally before 0.2 did not say
    uuid: str = ""  # of the epoch
    writer: str = ""  # the publisher process that wrote this

    @property
    def next_epoch(self) -> int | None:
        """The epoch that comes next, or None where any may: nothing was published yet."""
        if self.epoch is None:
            return None
        return self.epoch + 1 if self.complete else self.epoch

    def covers(self, epoch: int) -> bool:
        expected = self.next_epoch
        return expected is not None and epoch < expected

    def seq_reached(self, epoch: int) -> int:
        """The highest seq of the epoch that is published already; below 0: none."""
        inside = self.epoch == epoch and not self.complete and self.seq is not None
        return self.seq if inside and self.seq is not None else -1


class Ready(msgspec.Struct, frozen=True):
    """The publisher has fenced its predecessors and knows how far they got."""

    epoch: int | None
    seq: int | None
    complete: bool
    topic_id: str
    partitions: int
    uuid: str = ""  # of the epoch


class Fatal(msgspec.Struct, frozen=True):
    """Why a publisher ended: `fenced`, `displaced`, `sink_taken`, `sink_changed`, `gap`,
    `broken_changelog`, `refused`, `address_refused`, `unreachable`, `crashed`; and `died`, where it
    could not say."""

    code: str
    reason: str
    hint: str = ""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the publisher; one of ready, published and fatal is there."""

    ready: Ready | None = None
    published: int | None = None
    records: int | None = None  # made from the epoch in this process's life
    seconds: float | None = None  # from the line that asked for it to its commit
    fatal: Fatal | None = None
