"""Windows: which of them a row is in.

    HOP, slide 5, size 10    ... [-5 .. 4] [0 .. 9] [5 .. 14] ...    aligned to 1970
                                              │        │
    row at 7                                  └────────┴─► (row, 0, 10), (row, 5, 15)

A row that carries its window is a row like any other: `opened` is the plan over such rows, which
needs to know nothing of windows. `jobs.edge.spark.window_columns` does the same with Columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jobs.core.plan.tree import Column, Expression, Named, Plan, Window, WindowBound
from jobs.core.plan.walk import replaced
from jobs.core.sql.printer import window_sql
from jobs.core.sql.window_calls import bounds
from jobs.core.values.change import Row

# The first and the last millisecond of the years 1 to 9999: both bounds of a window lie between
# them, or nobody could read its end.
WINDOWS_FROM_MS = -62_135_596_800_000
WINDOWS_TO_MS = 253_402_300_799_999

# The columns that an opened row has more; no column of a user has a blank in its name.
START, END = "window start", "window end"


def starts(window: Window, time_ms: int) -> range:
    """Where the windows of a time begin, in epoch milliseconds; empty where they would leave the
    years that there are."""
    last = time_ms - time_ms % window.step_ms
    first = last + window.slide_ms - window.size_ms
    if first < WINDOWS_FROM_MS or last + window.size_ms > WINDOWS_TO_MS:
        return range(0)
    return range(first, last + 1, window.slide_ms)


def no_window(window: Window) -> tuple[str, str]:
    """Why a row is in no window: its time is NULL, or out of range."""
    name = window_sql(window)
    return f"{name}: the time is NULL", f"{name}: the window is not within the years 1 to 9999"


def opener(plan: Plan, window: Window) -> Callable[[Row], list[Row]]:
    """How to open a row of used columns: once for each of its windows, with their bounds behind.
    A row without a window has none; see `unopened`."""
    place = plan.used.index(window.time)
    unit = window.unit

    def opened_rows(row: Row) -> list[Row]:
        time: Any = row[place]
        if time is None:
            return []
        begins = starts(window, time // unit)
        return [(*row, start * unit, (start + window.size_ms) * unit) for start in begins]

    return opened_rows


def unopened(row: Row) -> Row:
    """A row without windows, in the shape of one that has some: WHERE may still remove it."""
    return (*row, None, None)


def opened(plan: Plan, window: Window) -> Plan:
    """The plan over opened rows: the bounds of their window are two columns more."""
    start, end = bounds(window)
    more = (Column(START, start.type), Column(END, end.type))

    def column(part: Expression) -> Expression | None:
        return more[part.end] if isinstance(part, WindowBound) else None

    def of_opened(named: tuple[Named, ...]) -> tuple[Named, ...]:
        return tuple(Named(each.name, replaced(each.expression, column)) for each in named)

    return replace(
        plan,
        columns=(*plan.columns, *more),
        used=(*plan.used, *more),
        group=of_opened(plan.group),
        arguments=of_opened(plan.arguments),
    )
