"""The sink of a query: its topic, and the format of the records."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from schemas import limits
from schemas.spec.source import require_registry
from schemas.spec.values import ConnectionName, Count, Section, SinkTopic
from schemas.table.changelog import SINKS_OF_REGISTRY, SinkFormat


class Sink(Section):
    topic: SinkTopic
    connection: ConnectionName = "default"
    format: SinkFormat = "changelog-json"
    schema_registry: ConnectionName | None = Field(default=None, validate_default=True)
    partitions: Count = Field(default=4, le=limits.TOPIC_PARTITIONS_MAX)
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"
    publishers: Count = Field(default=1, le=limits.PUBLISHERS_MAX)

    @field_validator("schema_registry")
    @classmethod
    def _of_avro(cls, name: str | None, info: ValidationInfo) -> str | None:
        return require_registry(name, info.data.get("format"), SINKS_OF_REGISTRY)

    @field_validator("publishers")
    @classmethod
    def _a_partition_each(cls, publishers: int, info: ValidationInfo) -> int:
        partitions = info.data.get("partitions", publishers)
        if publishers > partitions:
            raise ValueError(f"must be at most partitions, which is {partitions}")
        return publishers
