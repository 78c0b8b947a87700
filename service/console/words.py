"""Words: how numbers, moments and durations are said on a page."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

ABSENT = "\u2013"  # an en dash
ELLIPSIS = "\u2026"
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
_BYTES_A_STEP = 1_024
_EXACT_BELOW = 10_000
_SECONDS_EXACT_BELOW = 10


def number(value: int | float | None) -> str:
    """12,345; a dash where there is none."""
    if value is None:
        return ABSENT
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.1f}"
    return f"{int(value):,}"


def short(value: int | float | None) -> str:
    """1.2 M: for places where the figure matters more than its last digit."""
    if value is None:
        return ABSENT
    if abs(value) < _EXACT_BELOW:
        return number(value)
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.1f} {name}"
    return number(value)


def duration(seconds: float | None) -> str:
    """Of two units at most: 3.2 s, 12 min, 2 h 5 min."""
    if seconds is None:
        return ABSENT
    seconds = max(0.0, seconds)
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms"
    if seconds < _SECONDS_EXACT_BELOW:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for index, (unit, name) in enumerate(_UNITS):
        if whole >= unit:
            first, rest = divmod(whole, unit)
            told = f"{first} {name}"
            if index + 1 < len(_UNITS) and unit > _UNITS[-2][0]:
                second = rest // _UNITS[index + 1][0]
                return f"{told} {second} {_UNITS[index + 1][1]}" if second else told
            return told
    return "0 s"


def size(count: int | None) -> str:
    """1.5 MiB."""
    if count is None:
        return ABSENT
    value, unit = float(count), 0
    while value >= _BYTES_A_STEP and unit < len(_BYTES) - 1:
        value, unit = value / _BYTES_A_STEP, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.1f} {_BYTES[unit]}"


def instant(milliseconds: int | None) -> str:
    """2026-01-31 12:00:00, in UTC; what lies outside the calendar is told as its number."""
    if milliseconds is None:
        return ABSENT
    try:
        moment = datetime.fromtimestamp(milliseconds / 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def clock(milliseconds: int | None) -> str:
    """12:00:00 of that day, where the day is said beside it."""
    told = instant(milliseconds)
    return told[11:] if told[10:11] == " " else told


def day(milliseconds: int | None) -> str:
    """2026-01-31; nothing where the moment is not in the calendar."""
    told = instant(milliseconds)
    return told[:10] if told[10:11] == " " else ""


def moment(milliseconds: int | None) -> Markup | str:
    """The same as an element, exact to the millisecond for machines."""
    if milliseconds is None:
        return ABSENT
    try:
        exact = datetime.fromtimestamp(milliseconds / 1_000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
    return Markup('<time datetime="{}">{} UTC</time>').format(exact, instant(milliseconds))


def age(milliseconds: int | None) -> str:
    """How long ago a moment was."""
    if milliseconds is None:
        return ABSENT
    seconds = time.time() - milliseconds / 1_000
    return "just now" if seconds < 1 else f"{duration(seconds)} ago"


def plural(count: int, one: str, many: str | None = None) -> str:
    """1 row, 2 rows."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


FILTERS: dict[str, Callable[..., Any]] = {
    "number": number,
    "short": short,
    "duration": duration,
    "size": size,
    "instant": instant,
    "clock": clock,
    "day": day,
    "moment": moment,
    "age": age,
    "plural": plural,
}
