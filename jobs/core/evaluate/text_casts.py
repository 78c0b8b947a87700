"""CAST of a text to another type, as Spark and Flink read it.

' 12.9 ' ─► INT 12      '1e3' ─► DECIMAL 1000.00      'yes' ─► TRUE      '2026-1-31' ─► DATE
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from jobs.core.values.exact_numbers import to_float32
from jobs.core.values.float_values import canonical_float, round_to_odd
from jobs.core.values.rounding import EvaluationError, check_integer_range, fit_decimal
from schemas.limits import NUMBER_CHARACTERS_MAX
from schemas.types.sql_types import DECIMAL_PRECISION_MAX, Kind, SqlType

_CONTROLS = "".join(map(chr, range(33)))  # what Java's trim removes
_BLANKS = _CONTROLS + "\x7f"
_SPACES = " \t\n\x0b\f\r"
_WHOLE = re.compile(r"[+-]?[0-9]+")
_FRACTION = re.compile(rf"[{_SPACES}]*([+-]?[0-9]*)\.[0-9]*[{_SPACES}]*")
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,10})?")
_FLOATING = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_INFINITE = {"inf", "+inf", "infinity", "+infinity"}
_TRUTH = dict.fromkeys(("t", "true", "y", "yes", "1"), True) | dict.fromkeys(
    ("f", "false", "n", "no", "0"), False
)
_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?: .*|\s*))?)?", re.ASCII)
_STAMP = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{0,9}))?"
    r"(Z|[+-][0-9]{1,2}:[0-9]{2})?)?)?"
)
_EPOCH = datetime(1970, 1, 1)
OFFSET_MINUTES_MAX = 18 * 60  # as in Java, and so in Spark


class _NoValue(EvaluationError):
    def __init__(self, target: SqlType) -> None:
        super().__init__(f"is no {target}")


def text_reader(target: SqlType) -> Callable[[str], Any]:
    """Return a function from a text to a value of `target`; it may raise EvaluationError."""
    read = _reader(target)

    def convert(text: str) -> Any:
        try:
            value = read(text)
        except (ValueError, OverflowError):  # no such day, too many digits
            value = None
        if value is None:
            raise _NoValue(target)
        return value

    return convert


def _reader(target: SqlType) -> Callable[[str], Any]:
    """Return a function that gives None, or raises ValueError, for a text without a value."""
    if target.integer:
        return lambda text: _to_whole(text, target)
    if target.kind is Kind.DECIMAL:
        return lambda text: _to_decimal(text, target)
    if target.floating:
        return _to_float if target.kind is Kind.FLOAT else _to_double
    if target.kind is Kind.BOOLEAN:
        return lambda text: _TRUTH.get(text.strip(_BLANKS).lower())
    if target.kind is Kind.DATE:
        return _to_date
    if target.kind is Kind.BINARY:
        return str.encode
    unit, zone = 10 ** (6 - (target.precision or 0)), target.kind is Kind.TIMESTAMP_LTZ
    return lambda text: _to_stamp(text, unit, zone=zone)


def _to_whole(text: str, target: SqlType) -> int | None:
    """Return a whole number; a fraction is cut."""
    digits = text.strip(_BLANKS)
    if _WHOLE.fullmatch(digits) is None:
        found = _FRACTION.fullmatch(text)
        if found is None or not any(map(str.isdigit, text)):
            return None
        digits = found[1] + "0" if found[1] in ("", "+", "-") else found[1]
    if len(digits.lstrip("+-0")) > NUMBER_CHARACTERS_MAX:
        return None
    sign = -1 if digits.startswith("-") else 1
    return check_integer_range(sign * int(digits.lstrip("+-0") or "0"), target)


def _to_decimal(text: str, target: SqlType) -> int | None:
    digits = text.strip(_CONTROLS)
    if _DECIMAL.fullmatch(digits) is None:
        return None
    sign, figures, exponent = Decimal(digits).as_tuple()
    assert isinstance(exponent, int)
    if len(figures) + exponent > DECIMAL_PRECISION_MAX:
        return None
    if -exponent > len(figures) + DECIMAL_PRECISION_MAX + 1:
        return 0  # however small
    number = int("".join(map(str, figures))) * (-1 if sign else 1)
    if exponent > 0:
        number, exponent = number * 10**exponent, 0
    return fit_decimal(number, -exponent, target)


def _to_double(text: str) -> float | None:
    return _to_floating(text, float)


def _to_float(text: str) -> float | None:
    return _to_floating(text, lambda digits: to_float32(round_to_odd(digits)))


def _to_floating(text: str, nearest: Callable[[str], float]) -> float | None:
    """Return a number, or NaN or an infinity if the text names it; too large is no number."""
    word = text.strip(_CONTROLS)
    if found := _FLOATING.fullmatch(word):
        value = nearest(found[1])
    elif found := _HEXADECIMAL.fullmatch(word):
        value = nearest(repr(float.fromhex(found[1])))
    else:
        return _to_non_finite(word)
    return None if math.isinf(value) else canonical_float(value)


def _to_non_finite(word: str) -> float | None:
    lower = word.lower()
    if lower in _INFINITE:
        return math.inf
    if lower.startswith("-") and lower.replace("-", "+", 1) in _INFINITE:
        return -math.inf
    return canonical_float(math.nan) if lower == "nan" or word in ("+NaN", "-NaN") else None


def _to_date(text: str) -> int | None:
    found = _DATE.fullmatch(text.lstrip(_SPACES))
    if found is None:
        return None
    year, month, day = (int(part or 1) for part in found.groups())
    return date(year, month, day).toordinal() - _EPOCH.toordinal()


def _to_stamp(text: str, unit: int, *, zone: bool) -> int | None:
    """Return microseconds since 1970, without the digits below the unit."""
    found = _STAMP.fullmatch(text.strip(_SPACES))
    if found is None:
        return None
    *parts, fraction, offset = found.groups()
    if offset and not zone:
        return None
    moment = datetime(*(int(part or 0) for part in parts))  # type: ignore[arg-type]
    if offset and offset != "Z":
        hours, minutes = map(int, offset[1:].split(":"))
        if minutes >= 60 or hours * 60 + minutes > OFFSET_MINUTES_MAX:
            return None
        moment -= timedelta(minutes=int(f"{offset[0]}{hours * 60 + minutes}"))
    micros = (moment - _EPOCH) // timedelta(microseconds=1)
    micros += int((fraction or "").ljust(6, "0")[:6])
    return micros - micros % unit
