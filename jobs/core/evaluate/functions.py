"""Scalar functions over a group's results, in plain Python: `jobs.edge.spark.scalar_functions`.

Not all of them are here. What depends on tables of characters (UPPER), on the last digit of a
logarithm, on patterns of time or on JSON is Spark's alone, and is refused over aggregates.
"""

from __future__ import annotations

import hashlib
import math
from calendar import monthrange
from collections.abc import Callable
from datetime import date, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from typing import Any

from jobs.core.plan.scalar_functions import UNITS_MONTHS, UNITS_US
from jobs.core.plan.tree import Call, Constant
from jobs.core.values.rounding import Failed, canonical, fitted, half_up, in_range
from schemas.types.sql_types import Kind, SqlType

Function = Callable[..., Any]
_FIRST_DAY = date(1970, 1, 1)
_DAY_US = UNITS_US["DAY"]
_EXACT = Context(prec=1_200)  # room for every digit of a double
EXACT_DOUBLE_MAX = float(2**53)


def _constant(call: Call, place: int, default: Any) -> Any:
    argument = call.arguments[place] if len(call.arguments) > place else None
    return argument.value if isinstance(argument, Constant) else default


# --- numbers -------------------------------------------------------------------------------------


def _abs(call: Call) -> Function:
    if call.type.integer:
        return lambda value: in_range(abs(value), call.type)
    return lambda value: canonical(abs(value)) if call.type.floating else abs(value)


def _sign(call: Call) -> Function:
    if call.type.floating:
        return lambda value: value if value != value else float((value > 0) - (value < 0))
    return lambda value: (value > 0) - (value < 0)


def _toward(rounding: str) -> Callable[[Call], Function]:
    down = rounding == ROUND_FLOOR

    def of(call: Call) -> Function:
        source = call.arguments[0].type
        if source.integer:
            return lambda value: value
        if source.floating:
            return lambda value: _whole_float(value, math.floor if down else math.ceil)
        unit = 10 ** (source.scale or 0)
        return lambda value: fitted(value // unit if down else -(-value // unit), 0, call.type)

    return of


def _whole_float(value: float, whole: Callable[[float], int]) -> float:
    return canonical(float(whole(value))) if abs(value) < EXACT_DOUBLE_MAX else value


def _round(call: Call) -> Function:
    digits, source = _constant(call, 1, 0), call.arguments[0].type
    if source.floating:
        return lambda value: _rounded_float(value, digits, source)
    if source.integer:
        unit = 10 ** max(-digits, 0)
        return lambda value: in_range(half_up(value, unit) * unit, source)
    scale, target_scale = source.scale or 0, call.type.scale or 0
    if digits >= scale:
        return lambda value: value
    unit = 10 ** (scale - digits)
    up = 10 ** max(target_scale - digits, 0)
    return lambda value: fitted(half_up(value, unit) * up, target_scale, call.type)


def _rounded_float(value: float, digits: int, source: SqlType) -> float:
    """The decimal that the double is written as, rounded; Spark does so too."""
    if value - value != 0:
        return value
    step = Decimal((0, (1,), -digits))
    return canonical(float(Decimal(repr(value)).quantize(step, ROUND_HALF_UP, _EXACT)))


def _truncate(call: Call) -> Function:
    digits, source = _constant(call, 1, 0), call.arguments[0].type
    unit = int(10 ** max((source.scale or 0) - digits, 0))
    up = int(10 ** max((call.type.scale or 0) - digits, 0))

    def truncated(value: int) -> int:
        return (value // unit if value >= 0 else -(-value // unit)) * up

    return (lambda value: value) if unit == 1 else truncated


def _extreme(of: Callable[..., Any]) -> Callable[[Call], Function]:
    def extreme(call: Call) -> Function:
        if call.type.floating:  # NaN is the greatest
            return lambda *values: of(values, key=lambda value: (value != value, value))
        return lambda *values: of(values)

    return extreme


def _root(value: float) -> float:
    if value < 0:
        raise Failed("not defined")
    return math.sqrt(value)


# --- strings -------------------------------------------------------------------------------------


def _substring(text: str, start: int, length: int | None = None) -> str:
    """From a position that counts from 1, or from the end where it is negative."""
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    last = len(text) if length is None else first + length
    return text[max(first, 0) : max(last, 0)]


def _pad(left: bool) -> Callable[[Call], Function]:
    def pad(text: str, width: int, filling: str) -> str:
        missing = width - len(text)
        if missing <= 0:
            return text[:width]
        fill = (filling * (missing // len(filling) + 1))[:missing]
        return fill + text if left else text + fill

    return lambda call: pad


def _split_index(text: str, delimiter: str, index: int) -> str | None:
    parts = text.split(delimiter)
    return parts[index] if 0 <= index < len(parts) else None


def _translate(text: str, known: str, instead: str) -> str:
    table: dict[int, int | None] = {}
    for place, character in enumerate(known):
        table.setdefault(ord(character), ord(instead[place]) if place < len(instead) else None)
    return text.translate(table)


def _concat_ws(separator: str, *values: str | None) -> str:
    return separator.join(value for value in values if value is not None)


def _replace(text: str, search: str, replacement: str) -> str:
    return text.replace(search, replacement) if search else text


# --- moments -------------------------------------------------------------------------------------


def _day(sql_type: SqlType) -> Callable[[int], date]:
    if sql_type.kind is Kind.DATE:
        return lambda value: _FIRST_DAY + timedelta(days=value)
    return lambda value: _FIRST_DAY + timedelta(days=value // _DAY_US)


def _of_day(part: Callable[[date], int]) -> Callable[[Call], Function]:
    def of(call: Call) -> Function:
        day = _day(call.arguments[0].type)
        return lambda value: part(day(value))

    return of


def _of_time(unit: str, count: int) -> Callable[[Call], Function]:
    return lambda call: lambda value: value // UNITS_US[unit] % count


def _timestampadd(call: Call) -> Function:
    unit, target = _constant(call, 0, ""), call.type
    of_date = target.kind is Kind.DATE

    def added(_: str, count: int, moment: int) -> int:
        if unit in UNITS_MONTHS:
            day = moment if of_date else moment // _DAY_US
            moved = _months_later(day, count * UNITS_MONTHS[unit])
            return moved if of_date else moved * _DAY_US + moment % _DAY_US
        later = moment + count * UNITS_US[unit] // (_DAY_US if of_date else 1)
        _in_years(later if of_date else later // _DAY_US)
        return later

    return added


def _in_years(day: int) -> int:
    if not date.min.toordinal() <= day + _FIRST_DAY.toordinal() <= date.max.toordinal():
        raise Failed("there is no such value")
    return day


def _months_later(day: int, months: int) -> int:
    """The same day of another month, or its last one."""
    known = _FIRST_DAY + timedelta(days=day)
    year, month = divmod(known.year * 12 + known.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise Failed("there is no such value")
    last = monthrange(year, month + 1)[1]
    return (date(year, month + 1, min(known.day, last)) - _FIRST_DAY).days


def _timestampdiff(call: Call) -> Function:
    unit = _constant(call, 0, "")
    wide = [_DAY_US if each.type.kind is Kind.DATE else 1 for each in call.arguments[1:]]

    def difference(_: str, first: int, second: int) -> int:
        first, second = first * wide[0], second * wide[1]
        if unit in UNITS_MONTHS:
            return _toward_zero(_months_between(first, second), UNITS_MONTHS[unit])
        return _toward_zero(second - first, UNITS_US[unit])

    return difference


def _toward_zero(value: int, unit: int) -> int:
    return value // unit if value >= 0 else -(-value // unit)


def _months_between(first: int, second: int) -> int:
    """Whole months from one moment to another, toward zero."""
    (day, time), (end, end_time) = divmod(first, _DAY_US), divmod(second, _DAY_US)
    if end > day and end_time < time:
        end -= 1
    elif end < day and end_time > time:
        end += 1
    a, b = _FIRST_DAY + timedelta(days=day), _FIRST_DAY + timedelta(days=end)
    packed = ((b.year - a.year) * 12 + b.month - a.month) * 32 + b.day - a.day
    return _toward_zero(packed, 32)


def _date_trunc(call: Call) -> Function:
    unit, of_date = _constant(call, 0, ""), call.type.kind is Kind.DATE

    def truncated(_: str, moment: int) -> int:
        if unit in UNITS_US and unit not in ("DAY", "WEEK"):
            return moment - moment % UNITS_US[unit]
        day = moment if of_date else moment // _DAY_US
        if unit == "WEEK":
            day -= (day + 3) % 7  # 1970-01-01 was a Thursday
        elif unit != "DAY":
            known = _FIRST_DAY + timedelta(days=day)
            month = known.month if unit == "MONTH" else 1
            if unit == "QUARTER":
                month = (known.month - 1) // 3 * 3 + 1
            day = (date(known.year, month, 1) - _FIRST_DAY).days
        return day if of_date else day * _DAY_US

    return truncated


def _of_first(make: Callable[[Call], Function]) -> Callable[[Call], Function]:
    """A function whose further arguments are constants that it has seen already."""

    def of(call: Call) -> Function:
        function = make(call)
        return lambda value, *_: function(value)

    return of


def _plain(function: Function) -> Callable[[Call], Function]:
    return lambda call: function


FUNCTIONS: dict[str, Callable[[Call], Function]] = {
    "ABS": _abs,
    "SIGN": _sign,
    "FLOOR": _toward(ROUND_FLOOR),
    "CEIL": _toward(ROUND_CEILING),
    "ROUND": _of_first(_round),
    "TRUNCATE": _of_first(_truncate),
    "GREATEST": _extreme(max),
    "LEAST": _extreme(min),
    "SQRT": _plain(_root),
    "TRIM": _plain(lambda text: text.strip(" ")),
    "LTRIM": _plain(lambda text, taken=" ": text.lstrip(taken)),
    "RTRIM": _plain(lambda text, taken=" ": text.rstrip(taken)),
    "BTRIM": _plain(lambda text, taken: text.strip(taken)),
    "REPLACE": _plain(_replace),
    "SUBSTRING": _plain(_substring),
    "LEFT": _plain(lambda text, length: text[: max(length, 0)]),
    "RIGHT": _plain(lambda text, length: text[-length:] if length > 0 else ""),
    "CONCAT": _plain(lambda *values: "".join(values)),
    "CONCAT_WS": _plain(_concat_ws),
    "CHAR_LENGTH": _plain(len),
    "REVERSE": _plain(lambda text: text[::-1]),
    "REPEAT": _plain(lambda text, count: text * count),
    "LPAD": _pad(left=True),
    "RPAD": _pad(left=False),
    "TRANSLATE": _plain(_translate),
    "SPLIT_INDEX": _plain(_split_index),
    "POSITION": _plain(lambda part, text: text.find(part) + 1),
    "STARTSWITH": _plain(lambda text, part: text.startswith(part)),
    "ENDSWITH": _plain(lambda text, part: text.endswith(part)),
    "MD5": _plain(lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()),
    "SHA256": _plain(lambda text: hashlib.sha256(text.encode()).hexdigest()),
    "YEAR": _of_day(lambda day: day.year),
    "QUARTER": _of_day(lambda day: (day.month + 2) // 3),
    "MONTH": _of_day(lambda day: day.month),
    "WEEK": _of_day(lambda day: day.isocalendar().week),
    "DAYOFYEAR": _of_day(lambda day: day.timetuple().tm_yday),
    "DAYOFMONTH": _of_day(lambda day: day.day),
    "DAYOFWEEK": _of_day(lambda day: day.isoweekday() % 7 + 1),
    "HOUR": _of_time("HOUR", 24),
    "MINUTE": _of_time("MINUTE", 60),
    "SECOND": _of_time("SECOND", 60),
    "TIMESTAMPADD": _timestampadd,
    "TIMESTAMPDIFF": _timestampdiff,
    "DATE_TRUNC": _date_trunc,
}
