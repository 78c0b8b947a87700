"""The windows of a row as Spark Columns: the same as `jobs.core.rows.windows` gives.

    row, t = 7 ──► explode ──► row, window start = 0  ──► bounds 0 and 10
                               row, window start = 5  ──► bounds 5 and 15

Positions and weights are columns of the row and go along. A row without a window, whose time is
NULL or out of range, stays one row without a start; its bound says why it fails.
"""

from __future__ import annotations

from functools import lru_cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.core.plan.tree import Window, WindowBound
from jobs.core.rows.windows import START, WINDOWS_FROM_MS, WINDOWS_TO_MS, no_window
from schemas.types.sql_types import Kind


def with_windows(frame: DataFrame, window: Window) -> DataFrame:
    """The frame's rows once for each of their windows, with its start in epoch milliseconds."""
    return frame.withColumn(START, _starts(window, frame.sparkSession.sparkContext.applicationId))


def bound_column(bound: WindowBound) -> tuple[Column, Column | None]:
    """A bound of the window that a row carries, and why there is none; the start tells."""
    start = F.col(f"`{START}`")
    if bound.end:
        return _moment(start + F.lit(bound.window.size_ms), bound.window), None
    is_null, out_of_range = map(F.lit, no_window(bound.window))
    reason = F.when(_time(bound.window).isNull(), is_null).otherwise(out_of_range)
    return _moment(start, bound.window), F.when(start.isNull(), reason)


@lru_cache(maxsize=16)
def _starts(window: Window, application: str) -> Column:
    """Where the row's windows begin, a row for each; NULL where there is none."""
    size, slide = F.lit(window.size_ms).cast("long"), F.lit(window.slide_ms).cast("long")
    time, step = _milliseconds(window), F.lit(window.step_ms).cast("long")
    # Only where the bounds cannot overflow are they computed at all.
    last = F.when(time.between(WINDOWS_FROM_MS, WINDOWS_TO_MS), time - F.pmod(time, step))
    first = last + slide - size
    exists = (first >= WINDOWS_FROM_MS) & (last + size <= WINDOWS_TO_MS)
    if window.of_a_row == 1:
        return F.when(exists, last)
    return F.explode_outer(F.when(exists, F.sequence(first, last, slide)))


def _time(window: Window) -> Column:
    return F.col(f"`{window.time.name}`")


def _milliseconds(window: Window) -> Column:
    """The time of a row, rounded down."""
    if window.time.type.kind is Kind.BIGINT:
        return _time(window)
    return F.unix_millis(_time(window).cast("timestamp"))


def _moment(milliseconds: Column, window: Window) -> Column:
    kind = window.time.type.kind
    if kind is Kind.BIGINT:
        return milliseconds
    moment = F.timestamp_millis(milliseconds)
    return moment.cast("timestamp_ntz") if kind is Kind.TIMESTAMP else moment
