"""The protocol between a job's driver and its publisher process, and the progress topic.

    driver  ── Configuration, EpochToPublish, ..., {"stop": true} ──►  publisher
            ◄── {"ready": ..}, {"published": ..}, {"fatal": ..} ─────
    publisher ── Progress ──► <topic>-progress, in the transaction of its records

Each line is one JSON object. If the driver's lines end without a stop, the driver is dead, and the
publisher commits nothing more.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from schemas import limits
from schemas.table.changelog import SinkFormat
from schemas.table.epoch import Offsets

STOP_LINE = b'{"stop":true}\n'

# Up to where a partition is published: the epoch that is next, the seq reached in it (-1: none),
# and the uuid of the epoch before.
Position = tuple[int, int, str]
NOTHING: Position = (-1, -1, "")


class ResultColumns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names and SQL types of the group's columns, and of the row's columns in SELECT order."""

    group: list[tuple[str, str]]
    output: list[tuple[str, str]]
    window_end: tuple[str, str] | None = None


class SinkTopic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A topic with the changelog of one query."""

    topic: str
    format: SinkFormat
    partitions: int
    columns: ResultColumns
    topic_id: str | None = None  # None: the publisher may create the topic, or use any
    schemas: tuple[int, int] | None = None  # ids of Avro's schemas of the key and the value
    view: str | msgspec.UnsetType = msgspec.UNSET  # unset in a job with one query


class Configuration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line of the driver: the job, its table, and the topics."""

    job: str
    table: str = ""  # Delta's id of the job's table, which distinguishes jobs of the same name
    newest: int = -1  # the newest epoch of the table
    generation: int  # of the writer; of two writers the higher one wins
    connection: dict[str, str]  # librdkafka's options
    sinks: list[SinkTopic]
    delivery: Literal["exactly_once", "at_least_once"]
    transactional_id: str
    transaction_records: int = limits.TRANSACTION_RECORDS_MAX
    publishers: int = 1  # processes, each with a share of the partitions
    share: int = 0  # of this process; 0 has the helpers 1, 2, ...
    writer: str = ""  # of a helper: the writer id of share 0

    def of_share(self, share: int, writer: str = "") -> Configuration:
        """Return the configuration of another share, with a transactional id of its own."""
        name = f"{self.transactional_id}-{share}"
        return msgspec.structs.replace(self, share=share, writer=writer, transactional_id=name)


class EpochToPublish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A committed epoch: its changelog files, and the progress after its rows are published."""

    epoch: int
    uuid: str = ""
    files: list[list[str]]  # of each topic, absolute paths
    rows: int  # of all topics
    counts: list[int] = []  # how many each topic must get; none if that is not known
    watermark: int | None = None
    status: str = "active"
    offsets: Offsets = {}
    committed_ms: int | None = None  # the time of the commit; None: the publisher's clock
    appended_ms: int | None = None  # when its oldest record was appended; None without records


class EpochTimes(msgspec.Struct, frozen=True):
    """The latency marker of a published epoch: its way in milliseconds since 1970."""

    epoch: int
    appended_ms: int | None  # its oldest record, by Kafka's clock; None without records
    committed_ms: int | None  # its results to the table, by the driver's clock
    published_ms: int  # its changelog, by the publisher's clock

    @property
    def latency_ms(self) -> int | None:
        """The time from append to publication, at least 0; None without records."""
        return None if self.appended_ms is None else max(0, self.published_ms - self.appended_ms)


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The position of the topic, as a record of the progress topic.

    Until an epoch is `complete`, watermark, status, offsets and times are those of the previous
    epoch: results come first, then the watermark."""

    epoch: int | None = None
    seq: int | None = None
    complete: bool = True
    watermark: int | None = None
    status: str = "active"
    offsets: Offsets = {}
    generation: int = 0
    table: str = ""  # the table of the epochs
    uuid: str = ""  # of the epoch
    writer: str = ""  # the publisher process that wrote the record
    view: str | msgspec.UnsetType = msgspec.UNSET  # of a job with views
    times: list[EpochTimes] = []  # of the epochs that this record completes
    publishers: int | msgspec.UnsetType = msgspec.UNSET  # that share the partitions; unset: one
    key_schema: int | msgspec.UnsetType = msgspec.UNSET  # the id in each key; unset: keys are JSON
    # Partitions of this publisher that an earlier one has published further than this record says.
    ahead: dict[int, Position] | msgspec.UnsetType = msgspec.UNSET

    @property
    def next_epoch(self) -> int | None:
        """The next epoch to publish, or None if nothing was published yet."""
        if self.epoch is None:
            return None
        return self.epoch + 1 if self.complete else self.epoch

    def covers(self, epoch: int) -> bool:
        """Return whether the whole epoch is published."""
        expected = self.next_epoch
        return expected is not None and epoch < expected

    def seq_reached(self, epoch: int) -> int:
        """Return the highest published seq of an epoch; below 0 if there is none."""
        inside = self.epoch == epoch and not self.complete
        return -1 if not inside or self.seq is None else self.seq

    @property
    def position(self) -> Position:
        """Up to where it is, without the partitions that are ahead."""
        expected = self.next_epoch
        return NOTHING if expected is None else (expected, self.seq_reached(expected), self.uuid)

    def move_to(self, position: Position) -> Progress:
        """Return the progress with another position."""
        epoch, seq, uuid = position
        if position == self.position:
            return self
        if position == NOTHING:
            return msgspec.structs.replace(self, epoch=None, seq=None, complete=True, uuid="")
        complete, at = seq < 0, epoch - (seq < 0)
        return msgspec.structs.replace(
            self, epoch=at, seq=max(seq, 0), complete=complete, uuid=uuid
        )


class TopicPosition(msgspec.Struct, frozen=True):
    """A topic that the publisher has taken over, and how far it is."""

    topic_id: str
    partitions: int
    epoch: int | None = None  # None: nothing was published yet
    complete: bool = True
    uuid: str = ""  # of the epoch
    ahead: list[Position] = []  # of partitions and helpers that may be further

    @property
    def newest(self) -> int:
        """The newest epoch of which the topic has any row, or -1."""
        own = -1 if self.epoch is None else self.epoch
        return max([own, *(epoch - (seq < 0) for epoch, seq, _ in self.ahead)])

    @property
    def published(self) -> int:
        """The newest epoch that is completely published, or -1."""
        if self.epoch is None:
            return -1
        return self.epoch if self.complete else self.epoch - 1


class Ready(msgspec.Struct, frozen=True):
    """The publisher has fenced its predecessors and read the position of each topic."""

    topics: list[TopicPosition]


class Fatal(msgspec.Struct, frozen=True):
    """Why a publisher ended."""

    code: str  # of the catalogue of failures
    reason: str
    hint: str = ""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the publisher; one of ready, published and fatal is set."""

    ready: Ready | None = None
    published: int | None = None
    records: int | None = None  # records of the epoch that this process produced
    seconds: float | None = None  # from the driver's line to the commit
    latency_ms: int | None = None  # from the append of its oldest record to the commit
    fatal: Fatal | None = None
