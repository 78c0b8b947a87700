"""The job spec: what a user asks retally to keep, checked as far as that needs no SQL.

    source ──► columns ──► query ──► minibatch, watermark, state ──► sink, mirror

Keys are the user's; attributes are ours, and a duration's attribute carries its unit: the key
`latency: 1s` is `minibatch.latency_ms == 1000`. `document()` turns a spec back into the user's
form. `schemas.spec_file.load_spec` is the way in: it adds places and suggestions to the errors.

A rule that spans keys is a validator of the later key and looks at those before it, rather than
one of the whole section: so it speaks even while another key is wrong, and a user sees every
problem at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    SerializerFunctionWrapHandler,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)

from schemas import limits
from schemas.changelog import PROGRESS_SUFFIX, SinkFormat, SourceFormat, progress_topic
from schemas.duration import duration_text, parse_count, parse_duration
from schemas.types import Kind, SqlType

MINIBATCH_SIZE_DEFAULT = 5_000
MINIBATCH_MAX_ROWS_DEFAULT = 500_000

# What a row's time may be read from: an instant, or epoch milliseconds.
TIME_COLUMN_KINDS = (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ, Kind.BIGINT)

# Parts of an error's place that pydantic adds for a key that is a word or a mapping.
WORD_TAG, KEYS_TAG = "<word>", "<keys>"


class MisplacedError(ValueError):
    """A problem that belongs to a key below the one whose validator found it."""

    def __init__(self, reason: str, *below: str) -> None:
        super().__init__(reason)
        self.below = below


class Section(BaseModel):
    """A mapping of the spec. Strict, because `true` is no number and `5` no name; inputs stay out
    of messages unless a message of ours quotes them."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


def _duration(value: object) -> int:
    milliseconds = parse_duration(value)
    if milliseconds == 0:
        raise ValueError("must be greater than 0")
    return milliseconds


def _text(what: str, pattern: str, hint: str) -> AfterValidator:
    known = re.compile(pattern, re.ASCII)

    def check(text: str) -> str:
        if known.fullmatch(text) is None:
            raise ValueError(f"{text[:80]!r} is not {what}; {hint}")
        return text

    return AfterValidator(check)


def _topic(text: str) -> str:
    if text in (".", ".."):
        raise ValueError(f"{text!r} is not a topic name; Kafka reserves it")
    return text


def _regex(text: str) -> str:
    if len(text) > limits.PATTERN_CHARACTERS_MAX:
        raise ValueError(f"must be at most {limits.PATTERN_CHARACTERS_MAX} characters")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return text


def _sql(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty; write the SQL here")
    if len(text) > limits.QUERY_CHARACTERS_MAX:
        raise ValueError(
            f"has {len(text)} characters; at most {limits.QUERY_CHARACTERS_MAX} are taken"
        )
    return text


def _column_type(value: object) -> SqlType:
    if isinstance(value, SqlType):
        return value
    if not isinstance(value, str):
        raise ValueError("must be a type such as INT or DECIMAL(10, 2)")
    if "(" in value and ")" not in value:
        raise ValueError(
            f"{value[:40]!r} is half a type: inside {{ }} a comma ends a value; "
            'put it in quotes, as in "DECIMAL(10, 2)"'
        )
    if len(value) > limits.IDENTIFIER_CHARACTERS_MAX:
        raise ValueError(f"{value[:40]!r}... is not a type such as INT or DECIMAL(10, 2)")
    return SqlType.parse(value)


def _instant(value: object) -> int:
    """Epoch milliseconds of a number of them, or of ISO 8601 text; UTC where it names no zone."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value <= limits.COUNT_MAX:
            raise ValueError("must be epoch milliseconds, 0 or more")
        return value
    if not isinstance(value, str):
        raise ValueError("must be a time; write it like 2026-01-31T12:00:00Z")
    try:
        instant = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(
            f"{value[:40]!r} is not a time; write it like 2026-01-31T12:00:00Z"
        ) from None
    instant = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    milliseconds = (instant - _EPOCH) // timedelta(milliseconds=1)
    if milliseconds < 0:
        raise ValueError("must not be before 1970")
    return milliseconds


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _instant_document(milliseconds: int) -> str | int:
    """ISO text where the calendar reaches, for people; years beyond 9999 stay a number."""
    try:
        instant = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return milliseconds
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _partition(value: object) -> int:
    """A partition as a key of a mapping, where JSON has only text."""
    if isinstance(value, str) and re.fullmatch(r"0|[1-9][0-9]{0,8}", value):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError('must be a partition, a whole number such as "0"')


def _word_or_keys(value: object) -> str:
    return KEYS_TAG if isinstance(value, (Mapping, BaseModel)) else WORD_TAG


_DURATION_SCHEMA = WithJsonSchema({"type": ["string", "integer"], "examples": ["5s", "200ms"]})
_AS_DURATION = PlainSerializer(duration_text, return_type=str)
_NAME_HINT = "use letters, digits, - and _, and begin with a letter or digit"
_TOPIC_HINT = f"use 1 to {limits.TOPIC_CHARACTERS_MAX} of letters, digits, '.', '_' and '-'"

Duration = Annotated[int, BeforeValidator(_duration), _AS_DURATION, _DURATION_SCHEMA]
DurationOrZero = Annotated[int, BeforeValidator(parse_duration), _AS_DURATION, _DURATION_SCHEMA]
Count = Annotated[int, BeforeValidator(parse_count)]
JobName = Annotated[
    str,
    _text(
        "a job name",
        rf"[a-z][a-z0-9-]{{0,{limits.JOB_NAME_CHARACTERS_MAX - 1}}}",
        f"use 1 to {limits.JOB_NAME_CHARACTERS_MAX} of a-z, 0-9 and -, and begin with a letter",
    ),
]
Topic = Annotated[
    str,
    _text("a topic name", rf"[A-Za-z0-9._-]{{1,{limits.TOPIC_CHARACTERS_MAX}}}", _TOPIC_HINT),
    AfterValidator(_topic),
]
# Two topics are made for a sink; the longer name has to fit as well.
_SINK_TOPIC_MAX = limits.TOPIC_CHARACTERS_MAX - len(PROGRESS_SUFFIX)
SinkTopic = Annotated[
    Topic,
    _text(
        "a sink topic name",
        rf".{{1,{_SINK_TOPIC_MAX}}}",
        f"at most {_SINK_TOPIC_MAX} characters, so that {PROGRESS_SUFFIX} fits behind it",
    ),
]
GroupId = Annotated[
    str,
    _text("a group id", rf"[A-Za-z0-9._-]{{1,{limits.TOPIC_CHARACTERS_MAX}}}", _TOPIC_HINT),
]
ConnectionName = Annotated[
    str, _text("a connection's name", r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", _NAME_HINT)
]
ColumnName = Annotated[
    str,
    _text(
        "a column name",
        rf"[A-Za-z_][A-Za-z0-9_]{{0,{limits.IDENTIFIER_CHARACTERS_MAX - 1}}}",
        f"use at most {limits.IDENTIFIER_CHARACTERS_MAX} letters, digits and _, no digit first",
    ),
]
ColumnType = Annotated[
    SqlType,
    PlainValidator(_column_type),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "examples": ["INT", "DECIMAL(10, 2)"]}),
]
Regex = Annotated[str, AfterValidator(_regex)]
Sql = Annotated[str, AfterValidator(_sql)]
Instant = Annotated[
    int,
    BeforeValidator(_instant),
    PlainSerializer(_instant_document),
    WithJsonSchema({"type": ["string", "integer"], "examples": ["2026-01-31T12:00:00Z"]}),
]
Partition = Annotated[int, BeforeValidator(_partition)]
Offset = Annotated[int, Field(ge=0, le=2**63 - 1)]


class StartAt(Section):
    """Where a job begins that has no committed epoch: an instant, or offsets of one topic."""

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
    def _some(cls, offsets: dict[int, int] | None) -> dict[int, int] | None:
        if offsets is not None and not offsets:
            raise ValueError('names no partition; write it like {"0": 12}')
        return offsets


Start = Annotated[
    Annotated[Literal["earliest", "latest"], Tag(WORD_TAG)] | Annotated[StartAt, Tag(KEYS_TAG)],
    Discriminator(_word_or_keys),
]


class Source(Section):
    """Which changes are read. `topics` holds all of them, also where the user wrote `topic`."""

    topic: Topic | None = None
    topics: tuple[Topic, ...] = Field(default=(), strict=False, validate_default=True)
    connection: ConnectionName = "default"
    format: SourceFormat = "canal-json"
    database: Regex | None = None
    table: Regex | None = None
    start: Start = "earliest"
    group: GroupId | None = None

    @field_validator("topics")
    @classmethod
    def _one_or_several(cls, topics: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if "topic" not in info.data:  # it is wrong, and said so itself
            return topics
        topic = info.data["topic"]
        if topic is not None and topics and topics != (topic,):
            raise ValueError("is given beside topic; keep one of them")
        topics = topics or ((topic,) if topic is not None else ())
        if not topics:
            raise ValueError("no topic is named; add topic: NAME, or topics: [NAME, ...]")
        if len(topics) > limits.TOPICS_MAX:
            raise ValueError(f"names {len(topics)} topics; at most {limits.TOPICS_MAX} are read")
        twice = next((name for name in topics if topics.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice!r} is named twice; keep one")
        return topics

    @field_validator("database", "table")
    @classmethod
    def _canal_only(cls, pattern: str | None, info: ValidationInfo) -> str | None:
        if pattern is not None and info.data.get("format") == "changelog-json":
            raise ValueError("filters canal messages; changelog-json carries none; remove it")
        return pattern

    @field_validator("start")
    @classmethod
    def _offsets_of_one_topic(cls, start: Any, info: ValidationInfo) -> Any:
        several = len(info.data.get("topics", ())) > 1
        if isinstance(start, StartAt) and start.offsets is not None and several:
            raise MisplacedError(
                "offsets belong to one topic; use timestamp for several", "offsets"
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


class MiniBatch(Section):
    """When a bundle ends. `size` is None only on the event clock, where nothing need bound it."""

    clock: Literal["processing", "event"] = "processing"
    interval_ms: Duration | None = Field(default=None, alias="interval", validate_default=True)
    size: Count | None = Field(default=None, validate_default=True)
    latency_ms: Duration = Field(default=1_000, alias="latency")
    max_rows: Count | None = Field(default=None, validate_default=True)

    @field_validator("interval_ms")
    @classmethod
    def _interval_of_event_clock(cls, interval: int | None, info: ValidationInfo) -> int | None:
        clock = info.data.get("clock")
        if clock == "event" and interval is None:
            raise ValueError("the event clock needs it; write it like interval: 10s")
        if clock == "processing" and interval is not None:
            raise ValueError("belongs to clock: event; add that, or use latency instead")
        return interval

    @field_validator("size")
    @classmethod
    def _size_of_processing_clock(cls, size: int | None, info: ValidationInfo) -> int | None:
        if size is None and info.data.get("clock") == "processing":
            return MINIBATCH_SIZE_DEFAULT
        return size

    @field_validator("max_rows")
    @classmethod
    def _room_for_size(cls, max_rows: int | None, info: ValidationInfo) -> int:
        size = info.data.get("size") or 0
        if max_rows is None:
            return max(MINIBATCH_MAX_ROWS_DEFAULT, size)
        if max_rows < size:
            raise ValueError(f"must be at least size, which is {size}")
        return max_rows


class TimeColumn(Section):
    column: ColumnName


class GeneratorClass(Section):
    """A generator of the operator's; whether it may be used is the operator's allow-list's say."""

    path: Annotated[
        str,
        _text(
            "a class",
            r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*",
            "write it like package.module:ClassName",
        ),
    ] = Field(alias="class", max_length=limits.PATTERN_CHARACTERS_MAX)


class Alignment(Section):
    group: ConnectionName
    max_drift_ms: Duration = Field(alias="max_drift")
    every_ms: Duration = Field(default=1_000, alias="every")


RowTime = Annotated[
    Annotated[Literal["es", "ts", "kafka", "ingestion"], Tag(WORD_TAG)]
    | Annotated[TimeColumn, Tag(KEYS_TAG)],
    Discriminator(_word_or_keys),
]
Generator = Annotated[
    Annotated[Literal["bounded", "monotonous", "punctuated", "lag", "automatic"], Tag(WORD_TAG)]
    | Annotated[GeneratorClass, Tag(KEYS_TAG)],
    Discriminator(_word_or_keys),
]


class Watermark(Section):
    """Where a row's time comes from, and how far it has come. `automatic` follows the clock that
    stamps the rows, and is what ingestion time has when no generator is named."""

    time: RowTime = "es"
    generator: Generator = Field(default=None, validate_default=True)
    delay_ms: DurationOrZero = Field(default=0, alias="delay")
    marker: Sql | None = Field(default=None, validate_default=True)
    exact: bool = False
    idle_after_ms: Duration | None = Field(default=None, alias="idle_after")
    align: Alignment | None = None
    emit_every_ms: Duration = Field(default=200, alias="emit_every")
    future_skew_ms: Duration = Field(default=3_600_000, alias="future_skew")

    @field_validator("generator", mode="before")
    @classmethod
    def _generator_of_time(cls, generator: object, info: ValidationInfo) -> object:
        ingestion = info.data.get("time") == "ingestion"
        if generator is None:
            return "automatic" if ingestion else "bounded"
        if generator == "automatic" and not ingestion and "time" in info.data:
            raise ValueError("belongs to time: ingestion; use bounded, or that")
        return generator

    @field_validator("delay_ms")
    @classmethod
    def _delay_of_generator(cls, delay: int, info: ValidationInfo) -> int:
        generator = info.data.get("generator")
        if delay and generator in ("monotonous", "automatic"):
            raise ValueError(f"{generator} has none; remove it, or use generator: bounded")
        return delay

    @field_validator("marker")
    @classmethod
    def _marker_of_punctuated(cls, marker: str | None, info: ValidationInfo) -> str | None:
        if "generator" not in info.data:
            return marker
        punctuated = info.data["generator"] == "punctuated"
        if punctuated and marker is None:
            raise ValueError(
                "generator: punctuated needs it; write a predicate, as in kind = 'end'"
            )
        if marker is not None and not punctuated:
            raise ValueError("belongs to generator: punctuated; remove it, or use that")
        return marker

    @field_validator("exact")
    @classmethod
    def _exact_of_bounded(cls, exact: bool, info: ValidationInfo) -> bool:
        if exact and info.data.get("generator", "bounded") != "bounded":
            raise ValueError("belongs to generator: bounded; remove it")
        return exact


class State(Section):
    """`ttl_ms` 0 means that groups live for ever. `buckets` is fixed for a job's life."""

    ttl_ms: DurationOrZero = Field(default=0, alias="ttl")
    buckets: Count = Field(default=32, le=limits.BUCKETS_MAX)
    refresh: bool = True
    emit_expired: bool = True


class Sink(Section):
    topic: SinkTopic
    connection: ConnectionName = "default"
    format: SinkFormat = "changelog-json"
    partitions: Count = Field(default=4, le=limits.TOPIC_PARTITIONS_MAX)
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"


class JobSpec(Section):
    """A whole spec. Equal specs have equal documents, and the other way round."""

    name: JobName
    source: Source
    columns: dict[ColumnName, ColumnType]
    timestamp_format: Literal["sql", "iso"] = "sql"
    query: Sql
    # Of windows: results as they change, or once the watermark has passed; and how much longer a
    # window is open (None: with `final` not at all, with `changes` for ever).
    emit: Literal["changes", "final"] = "changes"
    allowed_lateness_ms: DurationOrZero | None = Field(default=None, alias="allowed_lateness")
    minibatch: MiniBatch = MiniBatch()
    watermark: Watermark = Watermark()
    state: State = State()
    sink: Sink | None = None
    mirror_ms: Duration | None = Field(default=None, alias="mirror")
    retention_ms: Duration = Field(default=7 * 86_400_000, alias="retention")
    on_error: Literal["quarantine", "fail"] = "quarantine"
    max_bad_fraction: float = Field(default=0.5, gt=0, le=1, allow_inf_nan=False)
    on_schema_change: Literal["stop", "continue"] = "stop"
    durable: bool = False
    version: Literal[1] = 1  # of this format; a retally that does not know it refuses the spec

    @field_validator("source")
    @classmethod
    def _group_of_job(cls, source: Source, info: ValidationInfo) -> Source:
        if source.group is None and "name" in info.data:
            return source.model_copy(update={"group": default_group(info.data["name"])})
        return source

    @field_validator("columns")
    @classmethod
    def _distinct_columns(cls, columns: dict[str, SqlType]) -> dict[str, SqlType]:
        if not columns:
            raise ValueError("names no column; write it like {id: BIGINT, name: STRING}")
        if len(columns) > limits.COLUMNS_MAX:
            raise ValueError(f"has {len(columns)} columns; at most {limits.COLUMNS_MAX} are taken")
        seen: dict[str, str] = {}
        for name in columns:
            first = seen.setdefault(name.lower(), name)
            if first != name:
                raise MisplacedError(f"differs from {first!r} only in case; rename one", name)
        return columns

    @field_validator("watermark")
    @classmethod
    def _declared_time_column(cls, watermark: Watermark, info: ValidationInfo) -> Watermark:
        columns = info.data.get("columns")
        if columns is None or not isinstance(watermark.time, TimeColumn):
            return watermark
        name = watermark.time.column
        if name not in columns:
            known = ", ".join(list(columns)[:10])
            raise MisplacedError(f"{name!r} is not one of columns ({known})", "time", "column")
        if columns[name].kind not in TIME_COLUMN_KINDS:
            kinds = ", ".join(TIME_COLUMN_KINDS)
            raise MisplacedError(
                f"{name!r} is {columns[name]}; a row's time is one of {kinds}", "time", "column"
            )
        return watermark

    @field_validator("sink")
    @classmethod
    def _sink_apart_from_source(cls, sink: Sink | None, info: ValidationInfo) -> Sink | None:
        source = info.data.get("source")
        if sink is None or source is None:
            return sink
        for topic in (sink.topic, progress_topic(sink.topic)):
            if topic in source.topics:
                raise MisplacedError(
                    f"{topic!r} is a source topic too; a job may not read what it writes", "topic"
                )
        return sink

    def document(self) -> dict[str, Any]:
        """The spec as a user writes it, every default spelled out, ready for YAML and JSON."""
        document = self.model_dump(by_alias=True, exclude_none=True)
        # A default group follows the name, so a copy under another name gets a group of its own.
        if self.source.group == default_group(self.name):
            document["source"].pop("group", None)
        return document


def default_group(job: str) -> str:
    return f"retally-{job}"
