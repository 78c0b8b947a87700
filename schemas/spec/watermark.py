"""The `watermark` section: where the time of rows comes from, and what follows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from schemas.spec.operator_classes import GeneratorClass
from schemas.spec.values import (
    KEYS_TAG,
    WORD_TAG,
    ColumnName,
    ConnectionName,
    Duration,
    DurationOrZero,
    IdleAfter,
    MisplacedError,
    Section,
    Sql,
    word_or_keys,
)
from schemas.types.sql_types import Kind, SqlType

EMIT_EVERY_MS = 200  # unless a spec or the operator says it
# Types of a column that has the time of a row: an instant, or epoch milliseconds.
TIME_COLUMN_KINDS = (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ, Kind.BIGINT)


class RowTime(Section):
    """The time that each row has: a column, or an SQL expression over the row's columns."""

    column: ColumnName | None = None
    expression: Sql | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.column is None) == (self.expression is None):
            raise ValueError(
                "is required to have either column or expression; write it like "
                "{column: updated_at}"
            )
        return self


class Mark(Section):
    """Which rows are marks of a punctuated watermark, and the time that a mark carries."""

    when: Sql
    time: Sql


class Alignment(Section):
    group: ConnectionName
    max_drift_ms: Duration = Field(alias="max_drift")
    every_ms: Duration = Field(default=1_000, alias="every")


Time = Annotated[
    Annotated[Literal["es", "ts", "kafka", "ingestion"], Tag(WORD_TAG)]
    | Annotated[RowTime, Tag(KEYS_TAG)],
    Discriminator(word_or_keys),
]
Marker = Annotated[
    Annotated[Sql, Tag(WORD_TAG)] | Annotated[Mark, Tag(KEYS_TAG)], Discriminator(word_or_keys)
]
Generator = Annotated[
    Annotated[Literal["bounded", "monotonous", "punctuated", "lag", "automatic"], Tag(WORD_TAG)]
    | Annotated[GeneratorClass, Tag(KEYS_TAG)],
    Discriminator(word_or_keys),
]


class TimeDefaults(NamedTuple):
    """What the operator of a service says for watermark sections that do not; None: nothing."""

    idle_after_ms: int | None = None
    emit_every_ms: int | None = None


NO_DEFAULTS = TimeDefaults()


class Watermark(Section):
    """Where the time of a row comes from, and how the watermark follows it.

    `automatic` follows the clock that stamps the rows; it is the default for ingestion time. With
    `follows` the watermark and the idleness are those of the job that publishes the topic."""

    time: Time = "es"
    where: Sql | None = None  # rows for which it is not true move no watermark
    generator: Generator = Field(default=None, validate_default=True)
    delay_ms: DurationOrZero = Field(default=0, alias="delay")
    marker: Marker | None = Field(default=None, validate_default=True)
    exact: bool = False
    within_epoch: bool = (
        False  # check each row against the rows before it, not by the epochs before
    )
    idle_after_ms: IdleAfter | None = Field(default=None, alias="idle_after")
    align: Alignment | None = None
    emit_every_ms: Duration | None = Field(default=None, alias="emit_every")
    future_skew_ms: Duration = Field(default=3_600_000, alias="future_skew")
    follows: Literal["progress"] | None = Field(default=None, alias="from")

    @property
    def period_ms(self) -> int:
        """How often the watermark is emitted."""
        return EMIT_EVERY_MS if self.emit_every_ms is None else self.emit_every_ms

    def with_defaults(self, defaults: TimeDefaults) -> Watermark:
        """Return this section with the operator's values for the keys that it lacks."""
        chosen = {}
        if self.idle_after_ms is None and defaults.idle_after_ms is not None and not self.follows:
            chosen["idle_after_ms"] = defaults.idle_after_ms
        if self.emit_every_ms is None and defaults.emit_every_ms is not None:
            chosen["emit_every_ms"] = defaults.emit_every_ms
        return self.model_copy(update=chosen) if chosen else self

    def require_time_column(self, columns: Mapping[str, SqlType]) -> None:
        """Raise MisplacedError if the column of the time is not declared, or of another type."""
        if isinstance(self.time, str) or self.time.column is None:
            return
        name = self.time.column
        if name not in columns:
            known = ", ".join(list(columns)[:10])
            raise MisplacedError(f"{name!r} is not one of columns ({known})", "time", "column")
        if columns[name].kind not in TIME_COLUMN_KINDS:
            kinds = ", ".join(TIME_COLUMN_KINDS)
            raise MisplacedError(
                f"{name!r} is {columns[name]}; use a column of one of {kinds}", "time", "column"
            )

    @field_validator("generator", mode="before")
    @classmethod
    def _generator_of_time(cls, generator: object, info: ValidationInfo) -> object:
        ingestion = info.data.get("time") == "ingestion"
        if generator is None:
            return "automatic" if ingestion else "bounded"
        if generator == "automatic" and not ingestion and "time" in info.data:
            raise ValueError("automatic needs time: ingestion; use bounded, or that time")
        return generator

    @field_validator("generator")
    @classmethod
    def _generator_of_rows(cls, generator: Any, info: ValidationInfo) -> Any:
        if info.data.get("where") is not None and generator in ("lag", "automatic"):
            raise ValueError(f"{generator} follows the clock, so where has no effect; remove it")
        return generator

    @field_validator("delay_ms")
    @classmethod
    def _delay_of_generator(cls, delay: int, info: ValidationInfo) -> int:
        generator = info.data.get("generator")
        if delay and generator in ("monotonous", "automatic"):
            raise ValueError(
                f"has no effect with generator: {generator}; remove it, or use generator: bounded"
            )
        return delay

    @field_validator("marker")
    @classmethod
    def _marker_of_punctuated(cls, marker: Any, info: ValidationInfo) -> Any:
        if "generator" not in info.data:
            return marker
        generator = info.data["generator"]
        punctuated = generator == "punctuated"
        if punctuated and marker is None:
            raise ValueError(
                "is required by generator: punctuated; write a predicate, as in kind = 'end'"
            )
        if marker is not None and not punctuated and not isinstance(generator, GeneratorClass):
            raise ValueError(
                "needs generator: punctuated, or a class; remove it, or use that generator"
            )
        return marker

    @field_validator("exact")
    @classmethod
    def _exact_of_bounded(cls, exact: bool, info: ValidationInfo) -> bool:
        if exact and info.data.get("generator", "bounded") != "bounded":
            raise ValueError("needs generator: bounded; remove it, or use that generator")
        return exact

    @field_validator("within_epoch")
    @classmethod
    def _within_epoch_of_rows(cls, within_epoch: bool, info: ValidationInfo) -> bool:
        generator = info.data.get("generator")
        if within_epoch and generator in ("lag", "automatic"):
            raise ValueError(
                f"has no effect with generator: {generator}, which follows the clock; remove it"
            )
        return within_epoch

    @field_validator("follows")
    @classmethod
    def _follows_alone(cls, follows: str | None, info: ValidationInfo) -> str | None:
        given = {
            "generator": info.data.get("generator", "bounded") != "bounded",
            "exact": info.data.get("exact"),
            "within_epoch": info.data.get("within_epoch"),
            "idle_after": info.data.get("idle_after_ms") is not None,
            "where": info.data.get("where") is not None,
        }
        for key, is_given in given.items():
            if follows and is_given:
                raise ValueError(
                    f"takes the watermark and idleness from the job that writes the topic, so "
                    f"{key} has no effect; remove it"
                )
        return follows

    @property
    def in_order(self) -> bool:
        """Whether the generator must see the rows of a partition one by one, in their order."""
        by_class = isinstance(self.generator, GeneratorClass)
        return by_class or self.marker is not None or self.within_epoch
