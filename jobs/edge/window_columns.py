"""The windows of a row as Spark Columns: the same as `jobs.core.windows` gives.

    row, t = 7 ──► explode ──► row, window start = 0, window end = 10
                               row, window start = 5, window end = 15

Positions and weights are columns of the row and go along. A row without a window, whose time is
NULL or out of range, stays one row without bounds; a bound says why it fails.
"""

from __future__ import annotations

from functools import lru_cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.core.plan import Window, WindowBound
from jobs.core.windows import END, START, WINDOWS_FROM_MS, WINDOWS_TO_MS, no_window
from schemas.types import Kind


def with_windows(frame: DataFrame, window: Window) -> DataFrame:
    """The frame's rows once for each of their windows, with the bounds of it."""
    begins, start, end = _columns(window, frame.sparkSession.sparkContext.applicationId)
    return frame.withColumn(START, begins).withColumns({START: start, END: end})


def bound_column(bound: WindowBound) -> tuple[Column, Column | None]:
    """A bound of the window that a row carries, and why there is none; the start tells."""
    value = F.col(f"`{END if bound.end else START}`")
    if bound.end:
        return value, None
    is_null, out_of_range = map(F.lit, no_window(bound.window))
    reason = F.when(_time(bound.window).isNull(), is_null).otherwise(out_of_range)
    return value, F.when(value.isNull(), reason)


@lru_cache(maxsize=16)
def _columns(window: Window, application: str) -> tuple[Column, Column, Column]:
    """Where windows begin in epoch milliseconds, a row for each; and the bounds made of that."""
    size, slide = F.lit(window.size_ms).cast("long"), F.lit(window.slide_ms).cast("long")
    time = _milliseconds(window)
    # Only where the bounds cannot overflow are they computed at all.
    last = F.when(time.between(WINDOWS_FROM_MS, WINDOWS_TO_MS), time - F.pmod(time, slide))
    first = last + slide - size
    exists = (first >= WINDOWS_FROM_MS) & (last + size <= WINDOWS_TO_MS)
    if window.of_a_row == 1:
        begins = F.when(exists, last)
    else:
        begins = F.explode_outer(F.when(exists, F.sequence(first, last, slide)))
    start = F.col(f"`{START}`")
    return begins, _moment(start, window), _moment(start + size, window)


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
