"""The job spec: its keys, their defaults, and all checks that need no SQL.

    source ──► columns ──► query ──► minibatch, watermark, state ──► sink, mirror
                       └─► views: other queries over the same rows, each with its own sink

Users write keys; the code uses attributes, whose names carry the unit of a duration: the key
`latency: 1s` is `minibatch.latency_ms == 1000`. `document()` turns a spec back into the user's
form. Load a spec with `schemas.spec.file.load_spec`, which adds positions and hints to the errors.

A rule about several keys is a validator of the last of them, not of the whole section. So it runs
even if another key is invalid, and the user sees every problem at once.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import (
    Field,
    ValidationInfo,
    field_validator,
)

from schemas import limits
from schemas.spec.source import (
    CONSTANT_METADATA,
    FORMATS_WITHOUT_TABLES,
    METADATA_TYPES,
    Source,
)
from schemas.spec.values import (
    ColumnName,
    ColumnType,
    ConnectionName,
    Count,
    Duration,
    DurationOrZero,
    ElsewhereError,
    JobName,
    MirrorEvery,
    MisplacedError,
    Section,
    SinkTopic,
    Sql,
    ViewName,
)
from schemas.spec.watermark import Watermark
from schemas.table.changelog import SinkFormat, progress_topic
from schemas.types.sql_types import SqlType

MINIBATCH_SIZE_DEFAULT = 5_000
MINIBATCH_MAX_ROWS_DEFAULT = 500_000
_READS_OWN_OUTPUT = (
    "is a source topic too; use another, so that the job does not read its own output"
)
_ONE_TRANSACTION = (
    "differs from that of another view; the views of a job publish in one transaction, so use the "
    "same for all"
)
_FOLLOWS_CHANGELOG = (
    "needs source.format: changelog-json, whose job writes its progress beside the topic; remove "
    "it, or read such a topic"
)

_NAME = re.compile(r"[\w-]+")  # a pattern that matches only itself
OnTruncate = Literal["stop", "apply", "quarantine"]


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


class Sink(Section):
    topic: SinkTopic
    connection: ConnectionName = "default"
    format: SinkFormat = "changelog-json"
    partitions: Count = Field(default=4, le=limits.TOPIC_PARTITIONS_MAX)
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"


class View(Section):
    """Another query over the source of a job, with the keys that a query may have of its own."""

    query: Sql
    emit: Literal["changes", "final"] = "changes"
    allowed_lateness_ms: DurationOrZero | None = Field(default=None, alias="allowed_lateness")
    state: State = State()
    sink: Sink | None = None
    mirror_ms: MirrorEvery | None = Field(default=None, alias="mirror")


class JobSpec(Section):
    """A whole job spec. Two specs are equal if and only if their documents are equal."""

    name: JobName
    source: Source
    columns: dict[ColumnName, ColumnType]
    # The columns that identify a row of the source. With `dedupe` the job keeps the last image of
    # each row, and retracts this image when the row changes.
    primary_key: tuple[ColumnName, ...] | None = Field(default=None, strict=False)
    dedupe: Literal["pk"] | None = Field(default=None, validate_default=True)
    timestamp_format: Literal["sql", "iso"] = "sql"
    query: Sql = ""  # "": only views
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
        csv = self.source.csv_events
        by_position = self.source.format == "csv" and (csv is None or csv.fields is None)
        if by_position or self.columns != other.columns:
            return self
        return self.model_copy(update={"columns": dict(other.columns)})

    def with_idle_default(self, idle_after_ms: int | None) -> JobSpec:
        """Return this spec with the operator's `idle_after` where a section has none."""
        watermark = self.watermark.with_idle_default(idle_after_ms)
        source = self.source.with_idle_default(idle_after_ms)
        return self.model_copy(update={"source": source, "watermark": watermark})

    @property
    def drops_early(self) -> bool:
        """Whether retractions before the first row of their group are dropped."""
        return self.early_retractions == "drop"

    @property
    def strategies(self) -> dict[str, Watermark]:
        """The watermark section of each topic: its own, or the job's."""
        source = self.source
        return {topic: source.watermark_of(topic) or self.watermark for topic in source.topics}

    @property
    def sections(self) -> dict[tuple[str, ...], Watermark]:
        """The watermark sections that some topic has, by their paths in the spec."""
        found: dict[tuple[str, ...], Watermark] = {}
        for index, topic in enumerate(self.source.topics):
            own = self.source.watermark_of(topic)
            path = ("watermark",) if own is None else section_path(index)
            found[path] = own or self.watermark
        return found

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
            raise ValueError(f"has {len(columns)} columns; use at most {limits.COLUMNS_MAX}")
        seen: dict[str, str] = {}
        for name in columns:
            first = seen.setdefault(name.lower(), name)
            if first != name:
                raise MisplacedError(
                    f"differs from {first!r} only in case; rename one of them", name
                )
        return columns

    @field_validator("columns")
    @classmethod
    def _columns_of_events(
        cls, columns: dict[str, SqlType], info: ValidationInfo
    ) -> dict[str, SqlType]:
        source = info.data.get("source")
        if source is None:
            return columns
        paths = source.json_events.paths if source.json_events else {}
        unknown = next((name for name in paths if name not in columns), None)
        if unknown is not None:
            raise ValueError(f"lacks {unknown!r}, which source.json.paths names; add it here")
        fields = source.csv_events.fields if source.csv_events else None
        missing = next((name for name in columns if fields and name not in fields), None)
        if missing is not None:
            raise MisplacedError("is not one of source.csv.fields; add it there", missing)
        return columns

    @field_validator("columns")
    @classmethod
    def _no_metadata(cls, columns: dict[str, SqlType], info: ValidationInfo) -> dict[str, SqlType]:
        source = info.data.get("source")
        if source is None or source.format in FORMATS_WITHOUT_TABLES:
            return columns
        for name in columns:
            if name.lower() in METADATA_TYPES:
                raise MisplacedError(
                    f"is metadata of {source.format} messages, which the query may use without a "
                    "declaration; remove it",
                    name,
                )
        return columns

    @field_validator("primary_key")
    @classmethod
    def _declared_key(cls, key: tuple[str, ...] | None, info: ValidationInfo) -> Any:
        columns = info.data.get("columns")
        if key is None or columns is None:
            return key
        if not key:
            raise ValueError("names no column; write it like [id]")
        source = info.data.get("source")
        tables = source is not None and source.format not in FORMATS_WITHOUT_TABLES
        for index, name in enumerate(key):
            if name not in columns and not (tables and name in CONSTANT_METADATA):
                known = ", ".join(list(columns)[:10])
                raise MisplacedError(f"{name!r} is not one of columns ({known})", str(index))
            if name in key[:index]:
                raise MisplacedError(f"{name!r} is named twice; keep one", str(index))
        return key

    @field_validator("dedupe")
    @classmethod
    def _dedupe_by_key(cls, dedupe: str | None, info: ValidationInfo) -> str | None:
        if dedupe is not None and info.data.get("primary_key", "wrong") is None:
            raise ValueError("needs a primary_key; write it like primary_key: [id]")
        source = info.data.get("source")
        if dedupe is None and source is not None and source.format == "upsert-json":
            raise ValueError(
                "is required by source.format: upsert-json, which has no old images; add "
                "dedupe: pk and primary_key"
            )
        return dedupe

    @field_validator("watermark")
    @classmethod
    def _declared_time_column(cls, watermark: Watermark, info: ValidationInfo) -> Watermark:
        columns, source = info.data.get("columns"), info.data.get("source")
        if columns is not None:
            watermark.require_time_column(columns)
        if source is None:
            return watermark
        if watermark.follows and source.format != "changelog-json":
            raise MisplacedError(_FOLLOWS_CHANGELOG, "from")
        for index, topic in enumerate(source.topics):
            own = source.watermark_of(topic)
            if own is not None and own.follows and source.format != "changelog-json":
                raise ElsewhereError(_FOLLOWS_CHANGELOG, *section_path(index), "from")
            try:
                if own is not None and columns is not None:
                    own.require_time_column(columns)
            except MisplacedError as error:
                raise ElsewhereError(str(error), *section_path(index), *error.below) from None
        return watermark

    @field_validator("sink")
    @classmethod
    def _sink_is_not_source(cls, sink: Sink | None, info: ValidationInfo) -> Sink | None:
        source = info.data.get("source")
        if sink is None or source is None:
            return sink
        for topic in (sink.topic, progress_topic(sink.topic)):
            if topic in source.topics:
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
        for key in ("sink", "emit", "allowed_lateness_ms", "state"):
            if (
                not has_query
                and key in info.data
                and info.data[key] != cls.model_fields[key].default
            ):
                name = cls.model_fields[key].alias or key
                raise ElsewhereError("belongs to the query; move it into a view", name)
        if info.data.get("dedupe") is not None:
            raise ValueError(
                "needs a source whose rows are distinct; dedupe in a job before this one, and read "
                "its changelog"
            )
        source, taken = info.data.get("source"), set[str]()
        if info.data.get("sink") is not None:
            taken |= _topics_of(info.data["sink"])
        for name, view in views.items():
            own = set() if view.sink is None else _topics_of(view.sink)
            if source is not None and own & set(source.topics):
                raise MisplacedError(_READS_OWN_OUTPUT, name, "sink", "topic")
            if own & taken:
                raise MisplacedError("is the topic of another view; use another", name, "sink")
            taken |= own
        sinks = {name: view.sink for name, view in views.items() if view.sink is not None}
        first = info.data.get("sink") or next(iter(sinks.values()), None)
        for name, sink in sinks.items():
            for key in ("connection", "delivery"):
                if getattr(sink, key) != getattr(first, key):
                    raise MisplacedError(_ONE_TRANSACTION, name, "sink", key)
        return views

    @field_validator("on_truncate")
    @classmethod
    def _removes_known_rows(cls, on_truncate: OnTruncate, info: ValidationInfo) -> OnTruncate:
        source = info.data.get("source")
        if on_truncate != "apply" or source is None:
            return on_truncate
        if info.data.get("dedupe", "wrong") is None:
            raise ValueError(
                "apply needs dedupe: pk, which knows the rows that a TRUNCATE removes; add dedupe "
                "and primary_key, or use stop"
            )
        for key, name in (("database", source.database), ("table", source.table)):
            if name is None or _NAME.fullmatch(name) is None:
                raise ValueError(
                    f"apply needs source.{key} to be one name without a pattern, because a "
                    "TRUNCATE removes the rows of one table only; name it, or use stop"
                )
        return on_truncate

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

    def document(self) -> dict[str, Any]:
        """Return the spec as a user writes it, with every default, ready for YAML and JSON."""
        document = self.model_dump(by_alias=True, exclude_none=True)
        if not self.query:
            document.pop("query")
        # Omit a default group, so that a copy under another name gets a group of its own.
        if self.source.group == default_group(self.name):
            document["source"].pop("group", None)
        return document


def _topics_of(sink: Sink) -> set[str]:
    """Return the topics that a sink writes."""
    return {sink.topic, progress_topic(sink.topic)}


def section_path(index: int) -> tuple[str, ...]:
    """Return the path of the watermark section of the topic at an index in `source.topics`."""
    return ("source", "topics", str(index), "watermark")


def default_group(job: str) -> str:
    """Return the consumer group of a job whose spec names none."""
    return f"retally-{job}"
