"""The source of a job: its topics, its start, and the format of the messages."""

from __future__ import annotations

from collections.abc import Container
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
from schemas.spec.snapshot import Snapshot
from schemas.spec.values import (
    KEYS_TAG,
    WORD_TAG,
    ConnectionName,
    Duration,
    FilesPath,
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
from schemas.spec.watermark import TimeDefaults, Watermark
from schemas.types.json_types import JsonObject
from schemas.types.sql_types import BIGINT, STRING

SourceFormat = Literal[
    "avro",
    "canal-json",
    "changelog-json",
    "csv",
    "debezium-avro",
    "debezium-json",
    "debezium-protobuf",
    "json",
    "maxwell-json",
    "protobuf",
    "upsert-json",
]
# The formats with a schema registry, and what it calls their schemas.
FORMATS_OF_REGISTRY = {
    "avro": "AVRO",
    "debezium-avro": "AVRO",
    "protobuf": "PROTOBUF",
    "debezium-protobuf": "PROTOBUF",
}
# Their messages are bytes without lines, or need a key, so files cannot have them.
FORMATS_WITHOUT_LINES = (*FORMATS_OF_REGISTRY, "upsert-json")
# Their messages name no table, so a source has no filters.
FORMATS_WITHOUT_TABLES = ("avro", "changelog-json", "csv", "json", "protobuf", "upsert-json")
# An update that changes a primary key is one message. Debezium sends a deletion and an insert.
FORMATS_WITH_KEY_CHANGES = ("canal-json", "maxwell-json")

# What a query may name besides the declared columns: the metadata of a row's message.
METADATA_TYPES = {"__database": STRING, "__table": STRING, "__es": BIGINT, "__ts": BIGINT}
# Of these what is the same in all messages of a row, and what is not.
CONSTANT_METADATA = ("__database", "__table")
MESSAGE_TIMES = ("__es", "__ts")


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


class Canal(Section):
    """How the source writes values."""

    # canal itself writes one character of ISO-8859-1 for each byte, Flink and retally base64.
    binary: Literal["latin1", "base64"] = "latin1"


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


class Files(Section):
    """Files of a directory or of a prefix in object storage, each of which is read once.

    To the rest of a job they are a topic with one partition, whose name is the path."""

    path: FilesPath
    every_ms: Duration = Field(default=10_000, alias="every")
    header: bool = False  # the first line of each file is no row


class TopicSource(Section):
    """A topic, and its own watermark section in place of the job's."""

    topic: Topic
    watermark: Watermark | None = None

    def with_watermark(self, watermark: Watermark) -> TopicSource:
        return self.model_copy(update={"watermark": watermark})


# A topic: its name, or a mapping.
Listed = Annotated[
    Annotated[Topic, Tag(WORD_TAG)] | Annotated[TopicSource, Tag(KEYS_TAG)],
    Discriminator(word_or_keys),
]


class Source(Section):
    """The changes that a job reads. `topics` has all topics, also if the user wrote `topic`."""

    topic: Topic | None = None
    files: Files | None = None
    listed: tuple[Listed, ...] = Field(
        default=(), alias="topics", strict=False, validate_default=True
    )
    connection: ConnectionName = "default"
    format: SourceFormat = "canal-json"
    schema_registry: ConnectionName | None = Field(default=None, validate_default=True)
    canal: Canal | None = None
    debezium: Debezium | None = None
    json_events: JsonEvents | None = Field(default=None, alias="json")
    csv_events: CsvEvents | None = Field(default=None, alias="csv")
    database: Regex | None = None
    table: Regex | None = None
    start: Start = "earliest"
    snapshot: Snapshot | None = None
    group: GroupId | None = None

    @model_validator(mode="before")
    @classmethod
    def _start_of_database(cls, given: Any) -> Any:
        """Let a topic begin where it ends when the job starts to read the rows of its table."""
        snapshot = given.get("snapshot") if isinstance(given, dict) else None
        if isinstance(snapshot, dict) and snapshot.get("jdbc") is not None:
            return {"start": "latest", **given}
        return given

    @field_validator("snapshot")
    @classmethod
    def _before_a_topic(cls, snapshot: Snapshot | None, info: ValidationInfo) -> Snapshot | None:
        if snapshot is not None and info.data.get("files") is not None:
            raise ValueError("comes before a topic, and files have none; put its rows into a file")
        return snapshot

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of all topics; of files it is their path."""
        return _names(self.listed) if self.files is None else (self.files.path,)

    def watermark_of(self, topic: str) -> Watermark | None:
        """Return the watermark section of a topic; None if the job's section is its own."""
        named = (each for each in self.listed if isinstance(each, TopicSource))
        return next((each.watermark for each in named if each.topic == topic), None)

    def with_defaults(self, defaults: TimeDefaults) -> Self:
        """Return this source with the operator's values where a watermark section has none."""
        listed = tuple(
            each
            if isinstance(each, str) or each.watermark is None
            else each.with_watermark(each.watermark.with_defaults(defaults))
            for each in self.listed
        )
        return self if listed == self.listed else self.model_copy(update={"listed": listed})

    @field_validator("listed")
    @classmethod
    def _one_or_several(cls, listed: tuple[Listed, ...], info: ValidationInfo) -> Any:
        if "topic" not in info.data:  # it is invalid and has its own problem
            return listed
        topic = info.data["topic"]
        if info.data.get("files", "invalid") is not None:
            if topic is not None or listed:
                raise ValueError("stands beside files; keep one of them")
            return listed
        if topic is not None and listed and listed != (topic,):
            raise ValueError("contradicts topic; keep one of them")
        listed = listed or ((topic,) if topic is not None else ())
        if not listed:
            raise ValueError("names no topic; add topic: NAME, topics: [NAME, ...], or files")
        if len(listed) > limits.TOPICS_MAX:
            raise ValueError(f"names {len(listed)} topics; use at most {limits.TOPICS_MAX}")
        topics = _names(listed)
        twice = next((name for name in topics if topics.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice!r} is named twice; keep one")
        return listed

    @field_validator("format")
    @classmethod
    def _of_lines(cls, name: str, info: ValidationInfo) -> str:
        if info.data.get("files") is not None and name in FORMATS_WITHOUT_LINES:
            raise ValueError(f"{name} has no lines, so files cannot have it; use another format")
        return name

    @field_validator("schema_registry")
    @classmethod
    def _of_its_formats(cls, name: str | None, info: ValidationInfo) -> str | None:
        return require_registry(name, info.data.get("format"), FORMATS_OF_REGISTRY)

    @field_validator("canal", "debezium", "json_events", "csv_events")
    @classmethod
    def _of_its_format(cls, section: Any, info: ValidationInfo) -> Any:
        wanted, *others = {
            "canal": ("canal-json",),
            "debezium": ("debezium-json", "debezium-protobuf"),
            "json_events": ("json",),
            "csv_events": ("csv",),
        }[str(info.field_name)]
        if section is not None and info.data.get("format", wanted) not in (wanted, *others):
            raise ValueError(f"needs format: {wanted}; remove it, or use that format")
        return section

    @field_validator("database", "table")
    @classmethod
    def _named_in_messages(cls, pattern: str | None, info: ValidationInfo) -> str | None:
        known = info.data.get("format")
        if pattern is not None and known in FORMATS_WITHOUT_TABLES:
            raise ValueError(f"has no effect, because {known} messages name no table; remove it")
        return pattern

    @field_validator("start")
    @classmethod
    def _offsets_of_one_topic(cls, start: Any, info: ValidationInfo) -> Any:
        several = len(info.data.get("listed", ())) > 1
        if isinstance(start, StartAt) and start.offsets is not None and several:
            raise MisplacedError(
                "needs a single topic; use timestamp for several topics", "offsets"
            )
        return start

    @model_serializer(mode="wrap")
    def _as_written(self, dump: SerializerFunctionWrapHandler) -> JsonObject:
        document: JsonObject = dump(self)
        if self.topic is not None or self.files is not None:
            document.pop("topics", None)
        elif "topics" in document:
            document["topics"] = list(document["topics"])
        return document


def require_registry(name: str | None, known: str | None, formats: Container[str]) -> str | None:
    """Return the name of a schema registry; raise ValueError unless the format needs its name."""
    if known is not None and (known in formats) != (name is not None):
        need = f"is required by format: {known}; add the name of a connection with a url"
        raise ValueError(need if name is None else f"has no effect with format: {known}")
    return name


def _names(listed: tuple[Listed, ...]) -> tuple[str, ...]:
    return tuple(each if isinstance(each, str) else each.topic for each in listed)
