"""Formatting of numbers, durations, sizes and times for pages."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime, tzinfo
from typing import Any

from markupsafe import Markup

from service.problems import make_parameter_problem

ABSENT = "\u2013"  # an en dash
ELLIPSIS = "\u2026"
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
_BYTES_PER_UNIT = 1_024
_EXACT_BELOW = 10_000
_SECONDS_EXACT_BELOW = 10

ZONE: ContextVar[tzinfo] = ContextVar("zone", default=UTC)  # of the times of a page


def format_number(value: int | float | None) -> str:
    """Return 12,345, or a dash for None."""
    if value is None:
        return ABSENT
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.1f}"
    return f"{int(value):,}"


def format_position(value: int | None) -> str:
    """Return an epoch or an offset: a name rather than an amount, so without separators."""
    return ABSENT if value is None else str(value)


def abbreviate_number(value: int | float | None) -> str:
    """Return 1.2 M: for figures whose last digits do not matter."""
    if value is None:
        return ABSENT
    if abs(value) < _EXACT_BELOW:
        return format_number(value)
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.1f} {name}"
    return format_number(value)


def format_duration(seconds: float | None) -> str:
    """Return a duration in at most two units: 3.2 s, 12 min, 2 h 5 min."""
    if seconds is None:
        return ABSENT
    seconds = max(0.0, seconds)
    if 0 < seconds < 1:
        return f"{seconds * 1_000:.0f} ms"
    if 0 < seconds < _SECONDS_EXACT_BELOW:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for index, (unit, name) in enumerate(_UNITS):
        if whole >= unit:
            first, rest = divmod(whole, unit)
            text = f"{first} {name}"
            if index + 1 < len(_UNITS) and unit > _UNITS[-2][0]:
                second = rest // _UNITS[index + 1][0]
                return f"{text} {second} {_UNITS[index + 1][1]}" if second else text
            return text
    return "0 s"


def format_size(count: int | None) -> str:
    """Return a number of bytes as 1.5 MiB."""
    if count is None:
        return ABSENT
    value, unit = float(count), 0
    while value >= _BYTES_PER_UNIT and unit < len(_BYTES) - 1:
        value, unit = value / _BYTES_PER_UNIT, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.1f} {_BYTES[unit]}"


def format_instant(milliseconds: int | None) -> str:
    """Return 2026-01-31 12:00:00 in the page's zone; milliseconds if outside the calendar."""
    if milliseconds is None:
        return ABSENT
    try:
        moment = datetime.fromtimestamp(milliseconds / 1_000, ZONE.get())
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def name_zone(milliseconds: int | None = None) -> str:
    """Return the name of the page's zone at a moment: UTC, CET."""
    try:
        seconds = time.time() if milliseconds is None else milliseconds / 1_000
        return datetime.fromtimestamp(seconds, ZONE.get()).strftime("%Z")
    except (OverflowError, ValueError, OSError):
        return ""


def parse_iso(text: str | None) -> int | None:
    """Return the milliseconds of a document's time, which is ISO 8601 text in UTC."""
    return None if text is None else round(datetime.fromisoformat(text).timestamp() * 1_000)


def parse_moment(name: str, text: str) -> int:
    """Return the milliseconds of a parameter; a time without an offset is in the page's zone."""
    try:
        moment = datetime.fromisoformat(text)
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=ZONE.get())
        return round(zoned.astimezone(UTC).timestamp() * 1_000)
    except (ValueError, OverflowError):
        reason = f"{name} is no time; write it like 2026-01-31T12:00:00Z"
        raise make_parameter_problem(f"query.{name}", reason) from None


def shorten_instant(text: str | None) -> str:
    """Return the time of a document as pages show times."""
    at = parse_iso(text)
    return ABSENT if at is None else f"{format_instant(at)} {name_zone(at)}"


def format_time_of_day(milliseconds: int | None) -> str:
    """Return 12:00:00; the page shows the day separately."""
    text = format_instant(milliseconds)
    return text[11:] if text[10:11] == " " else text


def format_day(milliseconds: int | None) -> str:
    """Return 2026-01-31, or nothing for a time outside the calendar."""
    text = format_instant(milliseconds)
    return text[:10] if text[10:11] == " " else ""


def render_time(milliseconds: int | None) -> Markup | str:
    """Return a <time> element; its attribute is exact to the millisecond."""
    if milliseconds is None:
        return ABSENT
    try:
        exact = datetime.fromtimestamp(milliseconds / 1_000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
    shown = f"{format_instant(milliseconds)} {name_zone(milliseconds)}"
    return Markup('<time datetime="{}">{}</time>').format(exact, shown)


def format_age(milliseconds: int | None) -> str:
    """Return how long ago a moment was."""
    if milliseconds is None:
        return ABSENT
    seconds = time.time() - milliseconds / 1_000
    return "just now" if seconds < 1 else f"{format_duration(seconds)} ago"


def count_of(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun: 1 row, 2 rows."""
    return f"{format_number(count)} {one if count == 1 else many or one + 's'}"


def base_of(job: str, view: str) -> str:
    """Return the address of the pages of a job's results, or of one of its views."""
    return f"/jobs/{job}/views/{view}" if view else f"/jobs/{job}"


FILTERS: dict[str, Callable[..., Any]] = {
    "number": format_number,
    "position": format_position,
    "short": abbreviate_number,
    "duration": format_duration,
    "size": format_size,
    "instant": format_instant,
    "iso": shorten_instant,
    "from_iso": parse_iso,
    "zone": name_zone,
    "time_of_day": format_time_of_day,
    "day": format_day,
    "moment": render_time,
    "age": format_age,
    "plural": count_of,
}
