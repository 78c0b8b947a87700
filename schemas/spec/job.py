"""The job spec: its keys, their defaults, and all checks that need no SQL.

    source ──► columns ──► query ──► minibatch, watermark, state ──► sink, mirror
                       └─► views: other queries over the same rows, each with its own sink

Instead of `source` and the keys of its rows, `sources` has them by name. With one entry it is only
another way to write the short form. With several, `source_specs` has the spec of each, and
`topics` those of all. Each topic is of one connection, because its name identifies it in a job.

Users write keys; the code uses attributes, whose names carry the unit of a duration: the key
`latency: 1s` is `minibatch.latency_ms == 1000`. `document()` turns a spec back into the user's
form. Load a spec with `schemas.spec.file.load_spec`, which adds positions and hints to the errors.

A rule about several keys is a validator of the last of them, not of the whole section. So it runs
even if another key is invalid, and the user sees every problem at once.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError, PydanticKnownError

from schemas import limits
from schemas.spec.operator_classes import AggregateClass, FunctionName
from schemas.spec.sink import Sink
from schemas.spec.source import Source
from schemas.spec.source_rows import (
    ROW_KEYS,
    NamedSource,
    OnTruncate,
    RowRules,
    SourceName,
    is_positional,
    locate_key,
    require_distinct,
    require_one_reading,
    section_path,
)
from schemas.spec.values import (
    ColumnName,
    ColumnType,
    Count,
    Duration,
    DurationOrZero,
    ElsewhereError,
    JobName,
    Label,
    MirrorEvery,
    MisplacedError,
    Section,
    Sql,
    ViewName,
)
from schemas.spec.watermark import TimeDefaults, Watermark
from schemas.table.changelog import topics_of_sink
from schemas.types.json_types import JsonObject

# Keys that an earlier version does not know. Where they say what it does anyway, a written spec
# omits them, so that it can be read after a way back (docs/upgrade.md#going-back).
_LATER_DEFAULTS: dict[str, JsonObject] = {"": {"empty": "none"}, "sink": {"publishers": 1}}

MINIBATCH_SIZE_DEFAULT = 5_000
MINIBATCH_MAX_ROWS_DEFAULT = 500_000
# The first line of a new spec: editors check it by the file that `retally schema` prints.
SCHEMA_LINE = "# yaml-language-server: $schema=retally.schema.json"
Empty = Literal["none", "row"]
# The type of an error that only follows from another one.
ECHO = "echo"
_READS_OWN_OUTPUT = (
    "is a source topic too; use another, so that the job does not read its own output"
)
_ONE_TRANSACTION = (
    "differs from that of another view; the views of a job publish in the same transactions, so "
    "use the same for all"
)


class MiniBatch(Section):
    """When a bundle ends. Only the event clock allows `size` None, that is no limit of rows."""

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
            raise ValueError("is required by clock: event; write it like interval: 10s")
        if clock == "processing" and interval is not None:
            raise ValueError("needs clock: event; add that, or use latency instead")
        return interval

    @field_validator("size")
    @classmethod
    def _size_of_processing_clock(cls, size: int | None, info: ValidationInfo) -> int | None:
        if size is None and info.data.get("clock") == "processing":
            return MINIBATCH_SIZE_DEFAULT
        return size

    @field_validator("max_rows")
    @classmethod
    def _max_rows_above_size(cls, max_rows: int | None, info: ValidationInfo) -> int:
        size = info.data.get("size") or 0
        if max_rows is None:
            return max(MINIBATCH_MAX_ROWS_DEFAULT, size)
        if max_rows < size:
            raise ValueError(f"must be at least size, which is {size}")
        return max_rows


class State(Section):
    """How long groups live, and into how many buckets state is split.

    With `ttl_ms` 0 groups never expire. `buckets` cannot change after the job has started."""

    ttl_ms: DurationOrZero = Field(default=0, alias="ttl")
    buckets: Count = Field(default=32, le=limits.BUCKETS_MAX)
    refresh: bool = True
    emit_expired: bool = True


class View(Section):
    """Another query over the source of a job, with the keys that a query may have of its own."""

    query: Sql
    empty: Empty = "none"
    emit: Literal["changes", "final"] = "changes"
    allowed_lateness_ms: DurationOrZero | None = Field(default=None, alias="allowed_lateness")
    state: State = State()
    sink: Sink | None = None
    mirror_ms: MirrorEvery | None = Field(default=None, alias="mirror")


class JobSpec(RowRules):
    """A whole job spec. Two specs are equal if and only if their documents are equal."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [{"required": ["source", "columns"]}, {"required": ["sources"]}]
        }
    )

    name: JobName
    labels: tuple[Label, ...] | None = Field(None, strict=False, max_length=limits.LABELS_MAX)
    # Several sources, else None. If there are several, `source` and its rows are the first one's.
    sources: dict[SourceName, NamedSource] | None = None
    source: Source = Field(default=None, validate_default=True)
    columns: dict[ColumnName, ColumnType] = Field(default=None, validate_default=True)
    # The columns that identify a row of the source. With `dedupe` the job keeps the last image of
    # each row, and retracts this image when the row changes.
    primary_key: tuple[ColumnName, ...] | None = Field(
        default=None, strict=False, validate_default=True
    )
    dedupe: Literal["pk"] | None = Field(default=None, validate_default=True)
    timestamp_format: Literal["sql", "iso"] = Field(default="sql", validate_default=True)
    query: Sql = ""  # "": only views
    functions: dict[FunctionName, AggregateClass] | None = None
    # Whether a query without GROUP BY has a row without input. As in Flink it has none by default.
    empty: Empty = "none"
    # Emit the results of a window when they change, or once when the watermark has passed its end;
    # and how much longer the window stays open (None: `final` 0, `changes` for ever).
    emit: Literal["changes", "final"] = "changes"
    allowed_lateness_ms: DurationOrZero | None = Field(default=None, alias="allowed_lateness")
    minibatch: MiniBatch = MiniBatch()
    watermark: Watermark = Field(default=Watermark(), validate_default=True)
    state: State = State()
    sink: Sink | None = None
    # More queries over the same rows, by name; every epoch commits the results of all of them.
    views: dict[ViewName, View] | None = Field(default=None, validate_default=True)
    mirror_ms: MirrorEvery | None = Field(default=None, alias="mirror")
    retention_ms: Duration = Field(default=7 * 86_400_000, alias="retention")
    on_error: Literal["quarantine", "fail"] = "quarantine"
    max_bad_fraction: float = Field(default=0.5, gt=0, le=1, allow_inf_nan=False)
    on_schema_change: Literal["stop", "continue"] = "stop"
    on_truncate: OnTruncate = Field(default="stop", validate_default=True)
    # Retractions before the first row of their group: keep them in the state, or drop them.
    early_retractions: Literal["keep", "drop"] = "keep"
    durable: bool = False
    version: Literal[1] = 1  # of this format; older versions of retally refuse a newer one

    def with_column_order(self, other: JobSpec) -> JobSpec:
        """Return this spec with its columns in the order of `other`, if both have the same ones.

        To a user the order of columns means nothing, but a plan depends on it. In a line of CSV it
        is the order of the fields, so it means something unless the spec names these."""
        if self.sources is not None:
            others = other.sources or {}
            return self._with_sources(
                {
                    name: each.with_column_order(others[name].columns) if name in others else each
                    for name, each in self.sources.items()
                }
            )
        if is_positional(self.source) or self.columns != other.columns:
            return self
        return self.model_copy(update={"columns": dict(other.columns)})

    def with_defaults(self, defaults: TimeDefaults) -> JobSpec:
        """Return this spec with the operator's values where a watermark section has none."""
        if self.sources is not None:
            sources = self.sources.items()
            return self._with_sources(
                {name: each.with_defaults(defaults) for name, each in sources}
            )
        watermark = self.watermark.with_defaults(defaults)
        source = self.source.with_defaults(defaults)
        return self.model_copy(update={"source": source, "watermark": watermark})

    @property
    def drops_early(self) -> bool:
        """Whether retractions before the first row of their group are dropped."""
        return self.early_retractions == "drop"

    @property
    def strategies(self) -> dict[str, Watermark]:
        """The watermark section of each topic: its own, or that of its source."""
        return {
            topic: alone.source.watermark_of(topic) or alone.watermark
            for alone in self.source_specs.values()
            for topic in alone.source.topics
        }

    @property
    def sections(self) -> dict[tuple[str, ...], Watermark]:
        """The watermark sections that some topic has, by their paths in the spec."""
        found: dict[tuple[str, ...], Watermark] = {}
        for name, alone in self.source_specs.items():
            for index, topic in enumerate(alone.source.topics):
                own = alone.source.watermark_of(topic)
                path = ("watermark",) if own is None else section_path(index)
                found[locate_key(path, name)] = own or alone.watermark
        return found

    @field_validator("sources")
    @classmethod
    def _distinct_sources(
        cls, sources: dict[str, NamedSource] | None
    ) -> dict[str, NamedSource] | None:
        if sources is None:
            return None
        if not sources:
            raise ValueError("names no source; write it like {orders: {topic: ..., columns: ...}}")
        if len(sources) > limits.SOURCES_MAX:
            raise ValueError(f"has {len(sources)} sources; use at most {limits.SOURCES_MAX}")
        require_distinct(sources)
        require_one_reading(sources)
        return sources

    @field_validator("source", *ROW_KEYS, mode="before")
    @classmethod
    def _of_first_source(cls, value: Any, info: ValidationInfo) -> Any:
        """Return the key of the first of `sources`; beside them the job has none of its own."""
        key = str(info.field_name)
        if "sources" not in info.data:
            raise PydanticCustomError(ECHO, "sources is invalid")
        sources = info.data["sources"]
        default = cls.model_fields[key].default
        if sources is None:
            if value is None and key in ("source", "columns"):
                raise PydanticKnownError("missing")
            return value
        if value != default:
            raise ValueError(f"belongs to each source; move it into sources.{next(iter(sources))}")
        return next(iter(sources.values())).job_keys()[key]

    @model_validator(mode="after")
    def _one_source_in_short_form(self) -> Self:
        if self.sources is None or len(self.sources) > 1:
            return self
        (only,) = self.sources.values()
        given = {key: getattr(self, key) for key in ROW_KEYS if key in only.model_fields_set}
        return self.model_copy(update={"sources": None, "source": self.source, **given})

    @field_validator("source")
    @classmethod
    def _group_of_job(cls, source: Source, info: ValidationInfo) -> Source:
        if source.group is None and "name" in info.data:
            return source.model_copy(update={"group": default_group(info.data["name"])})
        return source

    @field_validator("minibatch")
    @classmethod
    def _clock_of_one_source(cls, minibatch: MiniBatch, info: ValidationInfo) -> MiniBatch:
        if minibatch.clock == "event" and len(info.data.get("sources") or ()) > 1:
            raise MisplacedError(
                "event needs a single source, because a joined row has no time of its own; use "
                "processing",
                "clock",
            )
        return minibatch

    @field_validator("early_retractions")
    @classmethod
    def _early_of_one_source(cls, early: str, info: ValidationInfo) -> str:
        if early == "drop" and len(info.data.get("sources") or ()) > 1:
            raise ValueError(
                "drop needs a single source, because the rows of a join have no order; use keep"
            )
        return early

    @field_validator("sink")
    @classmethod
    def _sink_is_not_source(cls, sink: Sink | None, info: ValidationInfo) -> Sink | None:
        topics = _topics_read(info)
        for topic in () if sink is None else topics_of_sink(sink.topic):
            if topic in topics:
                raise MisplacedError(
                    f"{topic!r} is a source topic too; use another, so that the job does not read "
                    "its own output",
                    "topic",
                )
        return sink

    @field_validator("views")
    @classmethod
    def _queries(
        cls, views: dict[str, View] | None, info: ValidationInfo
    ) -> dict[str, View] | None:
        has_query = info.data.get("query", "wrong") != ""
        if not views and not has_query:
            raise ElsewhereError("is required; add it", "query")
        if views is None:
            return None
        if not views:
            raise ValueError(
                "names no view; write it like {top: {query: SELECT ...}}, or remove it"
            )
        if len(views) > limits.VIEWS_MAX:
            raise ValueError(f"has {len(views)} views; use at most {limits.VIEWS_MAX}")
        for key in ("sink", "empty", "emit", "allowed_lateness_ms", "state"):
            if (
                not has_query
                and key in info.data
                and info.data[key] != cls.model_fields[key].default
            ):
                name = cls.model_fields[key].alias or key
                raise ElsewhereError("belongs to the query; move it into a view", name)
        topics, taken = _topics_read(info), set[str]()
        if info.data.get("sink") is not None:
            taken |= set(topics_of_sink(info.data["sink"].topic))
        for name, view in views.items():
            own = set() if view.sink is None else set(topics_of_sink(view.sink.topic))
            if own & topics:
                raise MisplacedError(_READS_OWN_OUTPUT, name, "sink", "topic")
            if own & taken:
                raise MisplacedError("is the topic of another view; use another", name, "sink")
            taken |= own
        sinks = {name: view.sink for name, view in views.items() if view.sink is not None}
        first = info.data.get("sink") or next(iter(sinks.values()), None)
        for name, sink in sinks.items():
            for key in ("connection", "delivery", "publishers"):
                if getattr(sink, key) != getattr(first, key):
                    raise MisplacedError(_ONE_TRANSACTION, name, "sink", key)
        return views

    @field_validator("mirror_ms")
    @classmethod
    def _mirror_of_the_query(cls, mirror: int | None, info: ValidationInfo) -> int | None:
        if mirror is not None and info.data.get("query", "wrong") == "":
            raise ValueError("belongs to the query; move it into a view")
        return mirror

    @property
    def view_specs(self) -> dict[str, JobSpec]:
        """The spec of each view, as of a job with only this query; the job's own query is ""."""
        if self.views is None:
            return {"": self}
        specs = {}
        if self.query:
            specs[""] = self.model_copy(update={"views": None})
        for name, view in self.views.items():
            own = {key: getattr(view, key) for key in View.model_fields}
            specs[name] = self.model_copy(update={"views": None, **own})
        return specs

    @property
    def source_specs(self) -> dict[str, JobSpec]:
        """The spec of each source, as of a job with only this one; "" in the short form."""
        if self.sources is None:
            return {"": self}
        sources = self.sources.items()
        return {
            name: self.model_copy(update={"sources": None, **self._keys_of(each)})
            for name, each in sources
        }

    def _with_sources(self, sources: dict[str, NamedSource]) -> JobSpec:
        first = next(iter(sources.values()))
        return self.model_copy(update={"sources": sources, **self._keys_of(first)})

    def _keys_of(self, source: NamedSource) -> JsonObject:
        """Return the keys of a source in the short form, with its consumer group."""
        keys = source.job_keys()
        group = source.group or default_group(self.name)
        return keys | {"source": keys["source"].model_copy(update={"group": group})}

    @property
    def topics_by_source(self) -> dict[str, tuple[str, ...]]:
        """The topics of each source; "" is the short form."""
        return {name: each.source.topics for name, each in self.source_specs.items()}

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of all sources, each once."""
        return tuple(dict.fromkeys(chain.from_iterable(self.topics_by_source.values())))

    @property
    def topic_connections(self) -> dict[str, str]:
        """The name of the Kafka connection of each topic; files have none."""
        sources = [each.source for each in self.source_specs.values()]
        return {
            topic: each.connection
            for each in sources
            if each.files is None
            for topic in each.topics
        }

    @property
    def topics_by_connection(self) -> dict[str, list[str]]:
        """The topics of each Kafka connection, by its name."""
        found: dict[str, list[str]] = {}
        for topic, connection in self.topic_connections.items():
            found.setdefault(connection, []).append(topic)
        return found

    def sources_of(self, topic: str) -> tuple[str, ...]:
        """Return the names of the sources that read a topic; ("",) in the short form."""
        return tuple(name for name, topics in self.topics_by_source.items() if topic in topics)

    def dedupes(self, topic: str) -> bool:
        """Return whether the job keeps the last image of every row of a topic."""
        specs = self.source_specs
        rules = {specs[name].dedupe for name in self.sources_of(topic)}
        return bool(rules) and None not in rules

    @property
    def main(self) -> JobSpec:
        """The spec of the job's own query, or of its first view."""
        return next(iter(self.view_specs.values()))

    def find_mirror_intervals(self, *, endless: bool) -> dict[str, int]:
        """Return how often the mirror of each view is refreshed, in ms, if it has one.

        Without the key, only an endless run has a mirror: one that ends when it has caught up
        mostly ends before the first refresh.
        """
        default = limits.MIRROR_DEFAULT_MS if endless else 0
        views = self.view_specs.items()
        every = {name: default if of.mirror_ms is None else of.mirror_ms for name, of in views}
        return {name: ms for name, ms in every.items() if ms}

    def document(self) -> JsonObject:
        """Return the spec as a user writes it, with the defaults, ready for YAML and JSON."""
        document = self.model_dump(by_alias=True, exclude_none=True)
        for section in (document, *(document.get("views") or {}).values()):
            _omit_later_defaults(section)
        if not self.query:
            document.pop("query")
        if self.sources is not None:
            for key in ("source", *ROW_KEYS):
                document.pop(key, None)
            return document
        # Omit a default group, so that a copy under another name gets a group of its own.
        if self.source.group == default_group(self.name):
            document["source"].pop("group", None)
        return document


def _omit_later_defaults(section: JsonObject) -> None:
    for place, defaults in _LATER_DEFAULTS.items():
        found = section.get(place, {}) if place else section
        for key, default in defaults.items():
            if found.get(key) == default:
                del found[key]


def source_sections(document: JsonObject) -> list[JsonObject]:
    """Return the section of each source in the document of a spec."""
    sources = document.get("sources")
    return [document["source"]] if sources is None else list(sources.values())


def _topics_read(info: ValidationInfo) -> set[str]:
    """Return the topics of all sources, as far as they are valid."""
    sources = list((info.data.get("sources") or {}).values())
    return {topic for each in sources or [info.data.get("source")] if each for topic in each.topics}


def default_group(job: str) -> str:
    """Return the consumer group of a job whose spec names none."""
    return f"retally-{job}"
