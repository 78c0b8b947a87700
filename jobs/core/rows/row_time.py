"""The time of a row in epoch milliseconds, by `watermark.time`.

es, ts      two times of a canal message
kafka       the timestamp of the record
ingestion   the clock of the driver; rows have no time
a column    a TIMESTAMP or TIMESTAMP_LTZ, or a BIGINT of milliseconds
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, Row, Value
from schemas.spec.watermark import Watermark
from schemas.types.sql_types import Kind, SqlType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND_CHARACTERS = len("2026-01-01 00:00:00.000")

# Return the time of a message, or of a row; the second argument is the timestamp of the record.
TimeReader = Callable[[Changes, int | None], int | None]
RowReader = Callable[[Row, int | None], int | None]


def time_column(spec: Watermark, columns: tuple[Column, ...]) -> Column | None:
    if isinstance(spec.time, str) or spec.time.column is None:
        return None
    name = spec.time.column
    return next(column for column in columns if column.name == name)


def time_reader(source: str, column: Column | None) -> TimeReader | None:
    """Return a function from a message to its time, or None if messages have no time.

    A time column is the last value of each row; the latest of several rows counts."""
    if column is not None:
        return _column_time_reader(column)
    if source == "kafka":
        return lambda _, stamp: stamp
    if source == "es":
        return lambda changes, _: changes.es
    return (lambda changes, _: changes.ts) if source == "ts" else None


def _column_time_reader(column: Column) -> TimeReader:
    milliseconds = milliseconds_reader(column.type)

    def latest(changes: Changes, _stamp: int | None) -> int | None:
        times = [row[-1] for _, row in changes.changes]
        return max((milliseconds(time) for time in times if time is not None), default=None)

    return latest


def milliseconds_reader(sql_type: SqlType) -> Callable[[Any], int]:
    """Return a function from values of a time column to epoch milliseconds, rounded down."""
    if sql_type.kind is Kind.BIGINT:
        return int
    if sql_type.textual_time:
        return _textual_milliseconds
    return lambda micros: micros // 1_000


def _textual_milliseconds(text: Value) -> int:
    moment = datetime.fromisoformat(str(text)[:_MILLISECOND_CHARACTERS]).replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)
