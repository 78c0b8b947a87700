"""Assign rows to windows with Spark Columns, exactly like `jobs.core.rows.windows`.

    row, t = 7 ──► explode ──► row, window start = 0  ──► bounds 0 and 10
                               row, window start = 5  ──► bounds 5 and 15

Each copy keeps the row's position and weight. A row whose time is NULL or out of range has no
window: it stays one row with start NULL, and its bound has the reason why it fails.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.core.plan.tree import Window, WindowBound
from jobs.core.rows.windows import START, WINDOWS_FROM_MS, WINDOWS_TO_MS, no_window_reasons
from schemas.types.sql_types import Kind


def add_windows(frame: DataFrame, window: Window) -> DataFrame:
    """Repeat each row for each of its windows, with the window's start in epoch milliseconds."""
    return frame.withColumn(START, _starts(window))


def build_bound(bound: WindowBound) -> tuple[Column, Column | None]:
    """Return a bound of a row's window; for a start, also why the row has no window."""
    start = F.col(f"`{START}`")
    if bound.end:
        return _moment(start + F.lit(bound.window.size_ms), bound.window), None
    is_null, out_of_range = map(F.lit, no_window_reasons(bound.window))
    reason = F.when(_time(bound.window).isNull(), is_null).otherwise(out_of_range)
    return _moment(start, bound.window), F.when(start.isNull(), reason)


def _starts(window: Window) -> Column:
    """Return the start of each of a row's windows, exploded; NULL if the row has none."""
    size, slide = F.lit(window.size_ms).cast("long"), F.lit(window.slide_ms).cast("long")
    time, step = _milliseconds(window), F.lit(window.step_ms).cast("long")
    # Compute the bounds only if they cannot overflow.
    last = F.when(time.between(WINDOWS_FROM_MS, WINDOWS_TO_MS), time - F.pmod(time, step))
    first = last + slide - size
    exists = (first >= WINDOWS_FROM_MS) & (last + size <= WINDOWS_TO_MS)
    if window.windows_per_row == 1:
        return F.when(exists, last)
    return F.explode_outer(F.when(exists, F.sequence(first, last, slide)))


def _time(window: Window) -> Column:
    return F.col(f"`{window.time.name}`")


def _milliseconds(window: Window) -> Column:
    """Return the time of a row in milliseconds, rounded down."""
    if window.time.type.kind is Kind.BIGINT:
        return _time(window)
    return F.unix_millis(_time(window).cast("timestamp"))


def _moment(milliseconds: Column, window: Window) -> Column:
    kind = window.time.type.kind
    if kind is Kind.BIGINT:
        return milliseconds
    moment = F.timestamp_millis(milliseconds)
    return moment.cast("timestamp_ntz") if kind is Kind.TIMESTAMP else moment
