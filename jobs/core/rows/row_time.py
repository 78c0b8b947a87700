"""Row time: where the time of a change comes from, in epoch milliseconds.

es, ts      what canal stamped on the message
kafka       the record's own timestamp
ingestion   the clock of the driver; the rows say nothing
a column    of the row: TIMESTAMP and TIMESTAMP_LTZ, or BIGINT milliseconds
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, Value
from schemas.spec.job import TimeColumn, Watermark
from schemas.types.sql_types import Kind, SqlType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND_CHARACTERS = len("2026-01-01 00:00:00.000")

# Of a message and whatever record it came in; None where it has no time.
TimeOf = Callable[[Changes, object], int | None]


def time_column(spec: Watermark, columns: tuple[Column, ...]) -> Column | None:
    """The column that rows tell their time with, if it is one."""
    if not isinstance(spec.time, TimeColumn):
        return None
    return next(column for column in columns if column.name == spec.time.column)


def time_of(source: str, column: Column | None) -> TimeOf | None:
    """How to read a message's time; None where the message does not have it. A column comes last
    in a row; of several rows the latest one counts."""
    if column is not None:
        return _time_of_column(column)
    if source == "es":
        return lambda changes, _: changes.es
    return (lambda changes, _: changes.ts) if source == "ts" else None


def _time_of_column(column: Column) -> TimeOf:
    milliseconds = milliseconds_of(column.type)

    def latest(changes: Changes, _record: object) -> int | None:
        times = [row[-1] for _, row in changes.changes]
        return max((milliseconds(time) for time in times if time is not None), default=None)

    return latest


def milliseconds_of(sql_type: SqlType) -> Callable[[Any], int]:
    """Values of a time column as epoch milliseconds, rounded down."""
    if sql_type.kind is Kind.BIGINT:
        return int
    if sql_type.textual_time:
        return _textual_milliseconds
    return lambda micros: micros // 1_000


def _textual_milliseconds(text: Value) -> int:
    moment = datetime.fromisoformat(str(text)[:_MILLISECOND_CHARACTERS]).replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)
