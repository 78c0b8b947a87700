"""Read the window of a query, GROUP BY TUMBLE(t, ...) or another function, and its bounds.

GROUP BY k, TUMBLE(t, INTERVAL '1' MINUTE) ──► Window ──► its two bounds, as group columns
SELECT window_start, TUMBLE_END(t, INTERVAL '1' MINUTE) ──────────┘
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal

from sqlglot import exp

from jobs.core.plan.tree import Column, Expression, Window, WindowBound, WindowFunction
from jobs.core.plan.typing_rules import TypeProblem
from jobs.core.sql.printer import INTERVAL_UNITS_MS, window_sql
from schemas.limits import DURATION_MS_MAX, WINDOWS_OF_A_ROW_MAX
from schemas.spec.duration import duration_text
from schemas.types.sql_types import Kind

EXAMPLES = {
    "TUMBLE": "TUMBLE(t, INTERVAL '1' MINUTE)",
    "HOP": "HOP(t, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE), slide before size",
    "CUMULATE": "CUMULATE(t, INTERVAL '1' HOUR, INTERVAL '1' DAY), step before size",
    "SESSION": "SESSION(t, INTERVAL '10' MINUTE), with its gap",
}
WINDOWS = tuple(EXAMPLES)
_BOUNDS = {f"{window}_{bound}": bound == "END" for window in WINDOWS for bound in ("START", "END")}
WORDS = frozenset(WINDOWS) | frozenset(_BOUNDS)
NAMES = ("window_start", "window_end")
NO_BOUND = f"`{{}}` needs a window, such as GROUP BY {EXAMPLES['TUMBLE']}, and is not for WHERE"

# How many lengths a call has before its offset, and what the first of two is.
_LENGTHS: dict[str, tuple[WindowFunction, int, str]] = {
    "TUMBLE": ("TUMBLE", 1, ""),
    "HOP": ("HOP", 2, "slide"),
    "CUMULATE": ("CUMULATE", 2, "step"),
    "SESSION": ("SESSION", 1, ""),
}
_LENGTH = re.compile(r"\d{1,18}(\.\d{1,3})?", re.ASCII)

Read = Callable[[exp.Expr], Expression]


def is_window(node: exp.Expr) -> bool:
    """Return whether a key of GROUP BY is a window."""
    return isinstance(node, exp.Anonymous) and node.name.upper() in WINDOWS


def read_window(call: exp.Expr, read: Read) -> Window:
    """Return the window of a call in GROUP BY, with its time and lengths checked."""
    function, count, step = _LENGTHS[call.name.upper().partition("_")[0]]
    lengths = [_read_interval_ms(each) for each in call.expressions[1 : 1 + count]]
    offsets = [_read_interval_ms(each, offset=True) for each in call.expressions[1 + count :]]
    if len(lengths) < count or len(offsets) > (function != "SESSION"):
        more = "" if function == "SESSION" else ", and an offset may follow"
        message = f"{call.name.upper()} has {count + 1} arguments{more}"
        raise TypeProblem(message, EXAMPLES[function])
    slide, size = lengths[0], lengths[-1]
    if size % slide:
        raise TypeProblem(
            f"{function}: the size ({duration_text(size)}) must be a multiple of the {step} "
            f"({duration_text(slide)})",
            EXAMPLES[function],
        )
    if size // slide > WINDOWS_OF_A_ROW_MAX:
        raise TypeProblem(
            f"{function}: a row would be in {size // slide} windows; at most "
            f"{WINDOWS_OF_A_ROW_MAX} are possible, so use a larger {step}"
        )
    offset = sum(offsets) % (size if function == "CUMULATE" else slide)
    return Window(function, _check_time(read(call.expressions[0])), size, slide, offset)


def read_bound(call: exp.Expr, window: Window | None, read: Read) -> Expression:
    """Return a bound of the query's window for a call such as TUMBLE_START(...)."""
    name = call.name.upper()
    if name in WINDOWS:
        hint = "GROUP BY it, and select window_start and window_end"
        raise TypeProblem(f"{name}(...) is only possible as a key of GROUP BY", hint)
    call_window = read_window(call, read)
    if window is None:
        message = f"{name} needs GROUP BY {window_sql(call_window)}, and is not for WHERE"
        raise TypeProblem(message)
    if call_window != window:
        raise TypeProblem(f"the window of this query is {window_sql(window)}", "window_start")
    return window_bounds(window)[_BOUNDS[name]]


def window_bounds(window: Window) -> tuple[WindowBound, WindowBound]:
    """Return start and end of the window of a row."""
    bound = window.bound_type
    return WindowBound(window, False, bound), WindowBound(window, True, bound)


def add_bounds(names: Mapping[str, Expression], window: Window) -> dict[str, Expression]:
    """Return the names and the bounds of the window; a source column hides a bound."""
    known = {name.lower() for name in names}
    new = {bound.name: bound for bound in window_bounds(window) if bound.name not in known}
    return {**names, **new}


def _check_time(time: Expression) -> Column:
    if not isinstance(time, Column):
        raise TypeProblem(
            "the time of a window must be a source column, not an expression, because the "
            "watermark follows that column",
            "declare the column with the right type",
        )
    if time.type.kind not in (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ, Kind.BIGINT):
        raise TypeProblem(
            f"`{time.name}` is {time.type}; the time of a window must be TIMESTAMP, "
            "TIMESTAMP_LTZ, or BIGINT with epoch milliseconds"
        )
    if time.type.textual_time:
        message = f"windows over {time.type} are not supported"
        raise TypeProblem(message, f"{time.type.kind}(6) in columns")
    return time


def _read_interval_ms(node: exp.Expr, *, offset: bool = False) -> int:
    """Return INTERVAL '90' SECOND as milliseconds; an offset may be 0 or less."""
    example = "INTERVAL '1' MINUTE"
    length = node.this if isinstance(node, exp.Interval) else None
    unit = node.args.get("unit") if isinstance(node, exp.Interval) else None
    if not isinstance(length, exp.Literal) or not length.is_string or not isinstance(unit, exp.Var):
        raise TypeProblem("the length of a window must be a literal interval of one unit", example)
    name = unit.name.upper().removesuffix("S")
    if name in ("MONTH", "QUARTER", "YEAR"):
        raise TypeProblem(f"a {name} has no fixed length", "INTERVAL '30' DAY")
    digits = length.name.removeprefix("-") if offset else length.name
    if name not in INTERVAL_UNITS_MS or not _LENGTH.fullmatch(digits):
        units = ", ".join(INTERVAL_UNITS_MS)
        raise TypeProblem(f"the unit of an interval is one of {units}", example)
    milliseconds = Decimal(length.name) * INTERVAL_UNITS_MS[name]
    if milliseconds != int(milliseconds) or (milliseconds <= 0 and not offset):
        what, least = ("offset", "") if offset else ("length", " above 0")
        message = f"the {what} of a window must be a whole number of milliseconds{least}"
        raise TypeProblem(message, example)
    if milliseconds > DURATION_MS_MAX:
        raise TypeProblem(f"a window can be at most {duration_text(DURATION_MS_MAX)} long")
    return int(milliseconds)
