"""What a decode task gets: ranges, rules for reading them, and who reads the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from jobs.core.formats.registry import MessageDecoder, MessageRules
from jobs.core.formats.scanned import Scanner
from jobs.core.homes import ONE_TASK, Placement
from jobs.core.job.time_rules import TimeRules
from jobs.core.plan.tree import Column, Plan
from jobs.core.plan.walk import plan_can_fail
from jobs.core.time.rows_in_order import PartitionStart
from jobs.core.values.change import Decoded
from jobs.edge.files.lines import LinePiece
from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.kafka.records import Record, Records
from jobs.edge.rows.late_rows import Deadline
from jobs.edge.rows.weighted_rows import Parcelling
from jobs.edge.table.file_writer import EpochAttempt
from jobs.topics.schema_registry import schema_finder
from schemas.spec.connections import Registry
from schemas.spec.job import JobSpec
from schemas.table.epoch import SourceMemory
from schemas.table.object_path import TablePath


@dataclass(frozen=True, slots=True)
class TopicRules:
    """The rules for reading the records of one topic."""

    messages: MessageRules
    times: TimeRules

    def row(self, used: tuple[Column, ...]) -> tuple[Column, ...]:
        """Return the columns of a row: the used ones, then those of marks and of the time."""
        return (*used, *self.times.columns)


@lru_cache(maxsize=8)
def decoder_of(
    rules: TopicRules,
    columns: tuple[Column, ...],
    used: tuple[Column, ...],
    registry: Registry | None = None,
) -> MessageDecoder:
    find = schema_finder(registry, rules.messages.format)
    return rules.messages.decoder(columns, rules.row(used), find_schema=find)


@lru_cache(maxsize=8)
def scanner_of(
    rules: TopicRules, columns: tuple[Column, ...], used: tuple[Column, ...]
) -> Scanner | None:
    """Return the scanner of the source; None for a format or a type that it does not know."""
    return decoder_of(rules, columns, used).make_scanner()


def decode_each(decoder: MessageDecoder, records: Records) -> Iterator[tuple[Decoded, Record]]:
    """Decode each record, with its key if the format needs it; yield it with its record."""
    for record in records:
        yield decoder.decode(record.value, record.key), record


@dataclass(frozen=True, slots=True)
class SourceRules:
    """The rules of the job spec for reading the records of a source."""

    messages: MessageRules
    times: Mapping[str, TimeRules]  # of each topic

    @classmethod
    def of(cls, spec: JobSpec, plan: Plan) -> SourceRules:
        times = {topic: TimeRules.of(spec, topic, plan.columns) for topic in spec.source.topics}
        return cls(MessageRules.of(spec), times)

    def of_topic(self, topic: str) -> TopicRules:
        return TopicRules(self.messages, self.times[topic])

    @property
    def in_order(self) -> bool:
        """Whether rows of some topic are checked one by one."""
        return any(each.in_order for each in self.times.values())


@dataclass(frozen=True, slots=True)
class ViewInputs:
    """Who reads rows, for the tasks that make them: a view, or a side of a join.

    "" is the job's own query."""

    number: int  # among all readers
    name: str
    plan: Plan
    root: TablePath
    indexes: tuple[int, ...]  # of its columns among those of all views
    deadline: Deadline | None
    parcelling: Parcelling

    @property
    def can_fail(self) -> bool:
        return plan_can_fail(self.plan)


@dataclass(frozen=True, slots=True)
class DecodeInputs:
    """The ranges of an epoch, how to read them, and who gets the rows."""

    plan: Plan  # has the columns of all views
    rules: SourceRules
    connection: Mapping[str, str] = field(repr=False)  # librdkafka's options, with secrets
    ranges: tuple[OffsetRange, ...]
    root: TablePath
    attempt: EpochAttempt
    # By topic: a row with a later time is quarantined.
    horizons: Mapping[str, int] = field(default_factory=dict)
    drop_early: bool = False  # the fold drops retractions before the first row of a group
    touches_groups: bool = False  # under a TTL, rows that cancel keep their group alive
    starts: tuple[PartitionStart | None, ...] = ()  # of each range whose rows are checked in order
    memories: tuple[SourceMemory | None, ...] = ()  # of the messages before each range
    now_ms: int = 0  # the driver's clock
    key_buckets: int = 0  # with dedupe: each of them gets the TRUNCATEs of the epoch
    views: tuple[ViewInputs, ...] = ()
    images: int = 0  # with dedupe: the number of who reads the images
    placement: Placement = ONE_TASK  # of the tasks that read them
    joins: bool = False  # some views are sides of joins
    registry: Registry | None = None  # of the messages' schemas
    pieces: tuple[LinePiece, ...] | None = None  # of files, if it reads a directory

    @property
    def needs_messages(self) -> bool:
        """Whether the message of each row must be known."""
        return any(view.can_fail or view.deadline is not None for view in self.views)
