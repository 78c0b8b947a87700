"""The rows of a source: columns, primary key, watermark, and the rules between these keys.

    source: {topic: t}, columns: {..}, ..      the short form, for one source; keys of the job
    sources: {orders: {topic: t, columns: {..}, ..}, ..}          the same keys, for each source

Both forms share the rules below. Each is a validator of the last key that it needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator

from schemas import limits
from schemas.spec.source import CONSTANT_METADATA, FORMATS_WITHOUT_TABLES, METADATA_TYPES, Source
from schemas.spec.values import (
    IDENTIFIER,
    ColumnName,
    ColumnType,
    ElsewhereError,
    MisplacedError,
    Section,
    text_like,
)
from schemas.spec.watermark import TimeDefaults, Watermark
from schemas.types.json_types import JsonObject
from schemas.types.sql_types import SqlType

# The keys of a job that belong to each source if the job has `sources`.
ROW_KEYS = ("columns", "primary_key", "dedupe", "timestamp_format", "watermark", "on_truncate")
_FOLLOWS_CHANGELOG = (
    "needs source.format: changelog-json, whose job writes its progress beside the topic; remove "
    "it, or read such a topic"
)
_NAME = re.compile(r"[\w-]+")  # a pattern that matches only itself

OnTruncate = Literal["stop", "apply", "quarantine"]
SourceName = Annotated[str, text_like("a source name", *IDENTIFIER)]


def _source_of(info: ValidationInfo) -> Source | None:
    """Return the source of the rows if it is valid: a key of the job, or the keys before these."""
    if all(key in info.data for key in Source.model_fields):
        return Source.model_construct(**{key: info.data[key] for key in Source.model_fields})
    source: Source | None = info.data.get("source")
    return source


def distinct_columns(columns: dict[str, SqlType]) -> dict[str, SqlType]:
    if not columns:
        raise ValueError("names no column; write it like {id: BIGINT, name: STRING}")
    if len(columns) > limits.COLUMNS_MAX:
        raise ValueError(f"has {len(columns)} columns; use at most {limits.COLUMNS_MAX}")
    require_distinct(columns)
    return columns


def require_distinct(names: Mapping[str, object]) -> None:
    """Raise MisplacedError at a name that differs from an earlier one only in case."""
    seen: dict[str, str] = {}
    for name in names:
        first = seen.setdefault(name.lower(), name)
        if first != name:
            raise MisplacedError(f"differs from {first!r} only in case; rename one of them", name)


def require_one_reading(sources: Mapping[str, NamedSource]) -> None:
    """Raise MisplacedError unless one job can read all sources, each topic in one way."""
    topics: dict[str, tuple[str, NamedSource]] = {}
    for name, each in sources.items():
        for topic in each.topics:
            other, known = topics.setdefault(topic, (name, each))
            if each.connection != known.connection:
                raise MisplacedError(
                    f"differs from that of {other}, which reads a topic {topic} too; a job knows a "
                    "topic by its name, so use the same connection, or give one topic another name",
                    name,
                    "connection",
                )
            if each.files != known.files:
                raise MisplacedError(
                    f"differs from that of {other}, which reads {topic} too; use the same",
                    name,
                    "files",
                )
            same_time = each.strategy_of(topic) == known.strategy_of(topic)
            for key, same in (("watermark", same_time), ("start", each.start == known.start)):
                if not same:
                    raise MisplacedError(
                        f"differs from that of {other}, which reads {topic} too; each topic is "
                        "read once, so use the same for both",
                        name,
                        key,
                    )
        if len(sources) > 1:
            _require_any_order(name, each)


def _require_any_order(name: str, source: NamedSource) -> None:
    """Raise MisplacedError if a watermark must see the rows one by one."""
    for index, topic in enumerate(source.topics):
        section = source.strategy_of(topic)
        own = () if source.watermark_of(topic) is None else ("topics", str(index))
        if section.in_order:
            key = "within_epoch" if section.within_epoch else "generator"
            raise MisplacedError(
                "needs the rows of the job in their order, which a join does not keep; use "
                "generator: bounded",
                name,
                *own,
                "watermark",
                key,
            )


def locate_key(keys: tuple[str, ...], source: str) -> tuple[str, ...]:
    """Return the path of a key of the short form in an entry of `sources`; "" is the short form."""
    if not source:
        return keys
    return ("sources", source, *(keys[1:] if keys[0] == "source" else keys))


def is_positional(source: Source) -> bool:
    """Return whether the order of the columns is that of the fields of a line."""
    csv = source.csv_events
    return source.format == "csv" and (csv is None or csv.fields is None)


def columns_of_events(columns: dict[str, SqlType], info: ValidationInfo) -> dict[str, SqlType]:
    source = _source_of(info)
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


def no_metadata(columns: dict[str, SqlType], info: ValidationInfo) -> dict[str, SqlType]:
    source = _source_of(info)
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


def declared_key(key: tuple[str, ...] | None, info: ValidationInfo) -> Any:
    columns = info.data.get("columns")
    if key is None or columns is None:
        return key
    if not key:
        raise ValueError("names no column; write it like [id]")
    source = _source_of(info)
    tables = (
        source is not None
        and source.format not in FORMATS_WITHOUT_TABLES
        and source.snapshot is None  # whose rows have no message
    )
    for index, name in enumerate(key):
        if name not in columns and not (tables and name in CONSTANT_METADATA):
            known = ", ".join(list(columns)[:10])
            raise MisplacedError(f"{name!r} is not one of columns ({known})", str(index))
        if name in key[:index]:
            raise MisplacedError(f"{name!r} is named twice; keep one", str(index))
    return key


def dedupe_by_key(dedupe: str | None, info: ValidationInfo) -> str | None:
    if dedupe is not None and info.data.get("primary_key", "wrong") is None:
        raise ValueError("needs a primary_key; write it like primary_key: [id]")
    source = _source_of(info)
    if dedupe is None and source is not None and source.format == "upsert-json":
        raise ValueError(
            "is required by source.format: upsert-json, which has no old images; add "
            "dedupe: pk and primary_key"
        )
    if dedupe is None and source is not None and source.snapshot is not None:
        raise ValueError(
            "is required by source.snapshot, because the topic repeats changes that the rows of a "
            "snapshot have already; add dedupe: pk and primary_key"
        )
    return dedupe


def declared_time_column(watermark: Watermark, info: ValidationInfo) -> Watermark:
    columns, source = info.data.get("columns"), _source_of(info)
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


def section_path(index: int) -> tuple[str, ...]:
    """Return the path of the watermark section of the topic at an index in `source.topics`."""
    return ("source", "topics", str(index), "watermark")


def removes_known_rows(on_truncate: OnTruncate, info: ValidationInfo) -> OnTruncate:
    source = _source_of(info)
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


class RowRules(Section):
    """The rules between the keys of a source's rows, for a job and for each of its `sources`."""

    _distinct = field_validator("columns", check_fields=False)(distinct_columns)
    _of_events = field_validator("columns", check_fields=False)(columns_of_events)
    _metadata = field_validator("columns", check_fields=False)(no_metadata)
    _key = field_validator("primary_key", check_fields=False)(declared_key)
    _dedupe = field_validator("dedupe", check_fields=False)(dedupe_by_key)
    _time = field_validator("watermark", check_fields=False)(declared_time_column)
    _truncate = field_validator("on_truncate", check_fields=False)(removes_known_rows)


class NamedSource(RowRules, Source):
    """One of the `sources` of a job: a source and its rows, by the name that FROM gives it."""

    columns: dict[ColumnName, ColumnType]
    primary_key: tuple[ColumnName, ...] | None = Field(default=None, strict=False)
    dedupe: Literal["pk"] | None = Field(default=None, validate_default=True)
    timestamp_format: Literal["sql", "iso"] = "sql"
    watermark: Watermark = Field(default=Watermark(), validate_default=True)
    on_truncate: OnTruncate = Field(default="stop", validate_default=True)

    def strategy_of(self, topic: str) -> Watermark:
        """Return the watermark section of a topic: its own, or that of the source."""
        return self.watermark_of(topic) or self.watermark

    def with_column_order(self, columns: dict[str, SqlType]) -> NamedSource:
        """Return this source with its columns in the order of `columns`, if both are the same."""
        if is_positional(self) or self.columns != columns:
            return self
        return self.model_copy(update={"columns": dict(columns)})

    def with_defaults(self, defaults: TimeDefaults) -> Self:
        """Return this source with the operator's values where a watermark section has none."""
        watermark = self.watermark.with_defaults(defaults)
        return super().with_defaults(defaults).model_copy(update={"watermark": watermark})

    def job_keys(self) -> JsonObject:
        """Return the keys of a job that reads this source alone, in the short form."""
        own = {key: getattr(self, key) for key in Source.model_fields}
        return {"source": Source.model_construct(**own)} | {
            key: getattr(self, key) for key in ROW_KEYS
        }
