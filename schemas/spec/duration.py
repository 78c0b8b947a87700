"""Durations and counts as users write them: `5s`, `200ms`, `1 min`, `500_000`.

A duration needs a unit, because `latency: 5` does not show whether it means seconds; only 0 needs
none. Inside retally a duration is a whole number of milliseconds, as in Kafka and Flink.
"""

from __future__ import annotations

import re
from decimal import Decimal

from schemas.limits import COUNT_MAX, DURATION_MS_MAX

# Largest first: `duration_text` uses the largest unit that divides the duration exactly.
UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_WORDS = {
    "d": ("d", "day", "days"),
    "h": ("h", "hour", "hours"),
    "m": ("m", "min", "minute", "minutes"),
    "s": ("s", "sec", "second", "seconds"),
    "ms": ("ms", "milli", "millis", "millisecond", "milliseconds"),
}
_UNIT_OF_WORD = {word: unit for unit, words in _WORDS.items() for word in words}
# A bounded number of digits, so that no text becomes a number with a million of them.
_DURATION = re.compile(r"(-?[0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-z]*)", re.ASCII)
_COUNT = re.compile(r"-?[0-9](?:_?[0-9]){0,17}", re.ASCII)
_HINT = "write it like 200ms, 5s, 1m, 2h or 7d"


def parse_duration(value: object) -> int:
    """Return the milliseconds of a duration; raise ValueError with a hint if it is invalid."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ValueError(f"must be a duration; {_HINT}")
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"{value[:40]!r} is not a duration; {_HINT}")
    number, unit = match[1], _UNIT_OF_WORD.get(match[2].lower())
    if not match[2]:
        unit = "ms"
        if Decimal(number) > 0:
            raise ValueError(f"{number} has no unit; write it like {number}s or {number}ms")
    if unit is None:
        raise ValueError(f"unknown unit {match[2][:20]!r}; use one of {', '.join(UNITS_MS)}")
    milliseconds = Decimal(number) * UNITS_MS[unit]
    if milliseconds != milliseconds.to_integral_value():
        raise ValueError("must be a whole number of milliseconds")
    return _check_range(milliseconds)


def _check_range(milliseconds: Decimal) -> int:
    if milliseconds < 0:
        raise ValueError("must not be negative")
    if milliseconds > DURATION_MS_MAX:
        raise ValueError(f"must be at most {duration_text(DURATION_MS_MAX)}")
    return int(milliseconds)


def duration_text(milliseconds: int) -> str:
    """Return the shortest text that `parse_duration` turns into the same number."""
    if milliseconds == 0:
        return "0s"
    unit = next(unit for unit, size in UNITS_MS.items() if milliseconds % size == 0)
    return f"{milliseconds // UNITS_MS[unit]}{unit}"


def parse_count(value: object) -> int:
    """Return a number of rows, partitions or buckets above 0; text may contain `_`."""
    if isinstance(value, str) and _COUNT.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("must be a whole number")
    if value <= 0:
        raise ValueError("must be greater than 0")
    if value > COUNT_MAX:
        raise ValueError(f"must be at most {COUNT_MAX}")
    return value
