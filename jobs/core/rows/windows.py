"""Assign rows to windows.

    HOP, slide 5, size 10    ... [-5 .. 4] [0 .. 9] [5 .. 14] ...    aligned to 1970
                                              │        │
    row at 7                                  └────────┴─► (row, 0, 10), (row, 5, 15)

A row becomes one row for each of its windows, with the bounds as two more columns.
`with_window_columns` is the plan over such rows; it has no window itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jobs.core.plan.tree import Column, Expression, Named, Plan, Window, WindowBound
from jobs.core.plan.walk import replace_parts
from jobs.core.sql.printer import window_sql
from jobs.core.sql.window_calls import window_bounds
from jobs.core.values.change import Row

# The first and the last millisecond of the years 1 to 9999, which limit the bounds of a window:
# other timestamps have no text.
WINDOWS_FROM_MS = -62_135_596_800_000
WINDOWS_TO_MS = 253_402_300_799_999

# The additional columns of a row with its window; a user's column has no blank in its name.
START, END = "window start", "window end"


def windows_of(window: Window, time_ms: int) -> list[tuple[int, int]]:
    """Return the start and the end of each of a time's windows, in epoch milliseconds.

    There are none if a bound would be outside of the years 1 to 9999."""
    first, last = window.find_ends(time_ms)
    if window.find_starts(first, last) < WINDOWS_FROM_MS or last > WINDOWS_TO_MS:
        return []
    ends = range(first, last + 1, window.slide_ms)
    return [(window.find_starts(end, last), end) for end in ends]


def no_window_reasons(window: Window) -> tuple[str, str]:
    """Return the two reasons for a row without a window: its time is NULL, or out of range."""
    name = window_sql(window)
    return f"{name}: the time is NULL", f"{name}: the window is not within the years 1 to 9999"


def window_expander(plan: Plan, window: Window) -> Callable[[Row], list[Row]]:
    """Return a function from a row to one row for each of its windows, with the bounds appended.

    It returns no rows for a row without a window; see `without_window`."""
    index = plan.used.index(window.time)
    unit = window.unit

    def expand(row: Row) -> list[Row]:
        time: Any = row[index]
        if time is None:
            return []
        bounds = windows_of(window, time // unit)
        return [(*row, start * unit, end * unit) for start, end in bounds]

    return expand


def without_window(row: Row) -> Row:
    """Return a row without a window, with NULL bounds: WHERE may still drop it."""
    return (*row, None, None)


def with_window_columns(plan: Plan, window: Window) -> Plan:
    """Return the plan over rows with their window, whose bounds are two more columns."""
    start, end = window_bounds(window)
    more = (Column(START, start.type), Column(END, end.type))

    def column(part: Expression) -> Expression | None:
        return more[part.end] if isinstance(part, WindowBound) else None

    def rewrite(named: tuple[Named, ...]) -> tuple[Named, ...]:
        return tuple(Named(each.name, replace_parts(each.expression, column)) for each in named)

    return replace(
        plan,
        columns=(*plan.columns, *more),
        used=(*plan.used, *more),
        group=rewrite(plan.group),
        arguments=rewrite(plan.arguments),
    )
