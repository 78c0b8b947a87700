"""The formats of a source by name, and what a decoder is to those who use one."""

from __future__ import annotations

from typing import Protocol

from jobs.core.change import Decoded
from jobs.core.decode import CanalDecoder
from jobs.core.decode_changelog import ChangelogDecoder
from jobs.core.plan import Column
from jobs.core.row_fields import Decode
from jobs.core.values import TimestampFormat
from schemas import limits

FORMATS = ("canal-json", "changelog-json")


class MessageDecoder(Protocol):
    """Turns the value of a Kafka record into its changes; never raises for what is in it."""

    decode: Decode

    def explain(self, value: bytes | None) -> Decoded: ...


def decoder(
    source_format: str,
    columns: tuple[Column, ...],
    used: tuple[Column, ...],
    *,
    database: str | None = None,
    table: str | None = None,
    timestamp_format: TimestampFormat = "sql",
    missing_is_null: bool = False,
    bytes_max: int = limits.MESSAGE_BYTES_MAX,
) -> MessageDecoder:
    """The decoder of a source; what a format does not have is an error, not ignored."""
    if source_format == "canal-json":
        return CanalDecoder(
            columns, used, database, table, timestamp_format, missing_is_null, bytes_max=bytes_max
        )
    if source_format != "changelog-json":
        raise ValueError(f"unknown format {source_format!r}; known: {', '.join(FORMATS)}")
    if database is not None or table is not None:
        raise ValueError("changelog-json has no database and no table to filter by")
    return ChangelogDecoder(columns, used, missing_is_null, bytes_max=bytes_max)
