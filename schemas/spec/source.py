"""The source of a job: its topics, its start, and the format of the messages."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    Discriminator,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    Tag,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from schemas import limits
from schemas.spec.event_formats import CsvEvents, JsonEvents
from schemas.spec.values import (
    KEYS_TAG,
    WORD_TAG,
    ConnectionName,
    GroupId,
    Instant,
    MisplacedError,
    Offset,
    Partition,
    Regex,
    Section,
    Topic,
    word_or_keys,
)

SourceFormat = Literal[
    "canal-json", "changelog-json", "csv", "debezium-json", "json", "maxwell-json", "upsert-json"
]
_WITHOUT_TABLES = ("changelog-json", "csv", "json", "upsert-json")


class StartAt(Section):
    """Where a job without a committed epoch starts: an instant, or offsets of one topic."""

    timestamp_ms: Instant | None = Field(default=None, alias="timestamp")
    offsets: Annotated[
        dict[Partition, Offset] | None,
        PlainSerializer(lambda offsets: offsets and {str(p): at for p, at in offsets.items()}),
    ] = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.timestamp_ms is None) == (self.offsets is None):
            raise ValueError("give either timestamp or offsets")
        return self

    @field_validator("offsets")
    @classmethod
    def _not_empty(cls, offsets: dict[int, int] | None) -> dict[int, int] | None:
        if offsets is not None and not offsets:
            raise ValueError('names no partition; write it like {"0": 12}')
        return offsets


Start = Annotated[
    Annotated[Literal["earliest", "latest"], Tag(WORD_TAG)] | Annotated[StartAt, Tag(KEYS_TAG)],
    Discriminator(word_or_keys),
]


class Debezium(Section):
    """How the connector encodes values; needed if its messages contain no schema."""

    decimal_handling_mode: Literal["auto", "precise", "string", "double"] = "auto"
    time_precision_mode: Literal[
        "adaptive_time_microseconds",
        "adaptive",
        "connect",
        "isostring",
        "microseconds",
        "nanoseconds",
    ] = "adaptive_time_microseconds"


class Source(Section):
    """The changes that a job reads. `topics` has all topics, also if the user wrote `topic`."""

    topic: Topic | None = None
    topics: tuple[Topic, ...] = Field(default=(), strict=False, validate_default=True)
    connection: ConnectionName = "default"
    format: SourceFormat = "canal-json"
    debezium: Debezium | None = None
    json_events: JsonEvents | None = Field(default=None, alias="json")
    csv_events: CsvEvents | None = Field(default=None, alias="csv")
    database: Regex | None = None
    table: Regex | None = None
    start: Start = "earliest"
    group: GroupId | None = None

    @field_validator("topics")
    @classmethod
    def _one_or_several(cls, topics: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if "topic" not in info.data:  # it is invalid and has its own problem
            return topics
        topic = info.data["topic"]
        if topic is not None and topics and topics != (topic,):
            raise ValueError("contradicts topic; keep one of them")
        topics = topics or ((topic,) if topic is not None else ())
        if not topics:
            raise ValueError("names no topic; add topic: NAME, or topics: [NAME, ...]")
        if len(topics) > limits.TOPICS_MAX:
            raise ValueError(f"names {len(topics)} topics; use at most {limits.TOPICS_MAX}")
        twice = next((name for name in topics if topics.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice!r} is named twice; keep one")
        return topics

    @field_validator("debezium", "json_events", "csv_events")
    @classmethod
    def _of_its_format(cls, section: Any, info: ValidationInfo) -> Any:
        needed = {"debezium": "debezium-json", "json_events": "json", "csv_events": "csv"}
        wanted = needed[str(info.field_name)]
        if section is not None and info.data.get("format", wanted) != wanted:
            raise ValueError(f"needs format: {wanted}; remove it, or use that format")
        return section

    @field_validator("database", "table")
    @classmethod
    def _named_in_messages(cls, pattern: str | None, info: ValidationInfo) -> str | None:
        known = info.data.get("format")
        if pattern is not None and known in _WITHOUT_TABLES:
            raise ValueError(f"has no effect, because {known} messages name no table; remove it")
        return pattern

    @field_validator("start")
    @classmethod
    def _offsets_of_one_topic(cls, start: Any, info: ValidationInfo) -> Any:
        several = len(info.data.get("topics", ())) > 1
        if isinstance(start, StartAt) and start.offsets is not None and several:
            raise MisplacedError(
                "needs a single topic; use timestamp for several topics", "offsets"
            )
        return start

    @model_serializer(mode="wrap")
    def _as_written(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = dump(self)
        if self.topic is not None:
            document.pop("topics", None)
        elif "topics" in document:
            document["topics"] = list(self.topics)
        return document
