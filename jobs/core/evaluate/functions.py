"""The scalar functions of `jobs.core.plan.scalar_functions` in plain Python."""

from __future__ import annotations

import hashlib
import math
from calendar import monthrange
from collections.abc import Callable
from datetime import date, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from typing import Any

from jobs.core.evaluate import json_texts, strict_math, texts
from jobs.core.evaluate.texts import moment_printer, moment_reader
from jobs.core.plan.scalar_functions import UNITS_MONTHS, UNITS_US
from jobs.core.plan.tree import Call, Constant
from jobs.core.values.exact_numbers import divide_half_up, to_float32
from jobs.core.values.float_values import canonical_float
from jobs.core.values.rounding import EvaluationError, check_integer_range, fit_decimal
from schemas.types.sql_types import Kind, SqlType

Function = Callable[..., Any]
_FIRST_DAY = date(1970, 1, 1)
_DAY_US = UNITS_US["DAY"]
_EXACT = Context(prec=1_200)  # room for every digit of a double
EXACT_DOUBLE_MAX = float(2**53)  # from here on every DOUBLE is a whole number


def _constant(call: Call, index: int, default: Any) -> Any:
    argument = call.arguments[index] if len(call.arguments) > index else None
    return argument.value if isinstance(argument, Constant) else default


# --- numbers -------------------------------------------------------------------------------------


def _abs(call: Call) -> Function:
    if call.type.integer:
        return lambda value: check_integer_range(abs(value), call.type)
    return lambda value: canonical_float(abs(value)) if call.type.floating else abs(value)


def _sign(call: Call) -> Function:
    if call.type.floating:
        return lambda value: value if value != value else float((value > 0) - (value < 0))
    return lambda value: (value > 0) - (value < 0)


def _rounding_function(rounding: str) -> Callable[[Call], Function]:
    down = rounding == ROUND_FLOOR

    def of(call: Call) -> Function:
        source = call.arguments[0].type
        if source.integer:
            return lambda value: value
        if source.floating:
            return lambda value: _whole_float(value, math.floor if down else math.ceil)
        unit = 10 ** (source.scale or 0)
        return lambda value: fit_decimal(value // unit if down else -(-value // unit), 0, call.type)

    return of


def _whole_float(value: float, whole: Callable[[float], int]) -> float:
    return canonical_float(float(whole(value))) if abs(value) < EXACT_DOUBLE_MAX else value


def _round(call: Call) -> Function:
    digits, source = _constant(call, 1, 0), call.arguments[0].type
    if source.floating:
        return lambda value: _round_float(value, digits, source)
    if source.integer:
        unit = 10 ** max(-digits, 0)
        return lambda value: check_integer_range(divide_half_up(value, unit) * unit, source)
    scale, target_scale = source.scale or 0, call.type.scale or 0
    if digits >= scale:
        return lambda value: value
    unit = 10 ** (scale - digits)
    up = 10 ** max(target_scale - digits, 0)
    return lambda value: fit_decimal(divide_half_up(value, unit) * up, target_scale, call.type)


def _round_float(value: float, digits: int, source: SqlType) -> float:
    """Round the decimal that a double prints as, as Spark does."""
    if value - value != 0:
        return value
    step = Decimal((0, (1,), -digits))
    rounded = float(Decimal(repr(value)).quantize(step, ROUND_HALF_UP, _EXACT))
    return canonical_float(to_float32(rounded) if source.kind is Kind.FLOAT else rounded)


def _truncate(call: Call) -> Function:
    digits, source = _constant(call, 1, 0), call.arguments[0].type
    unit = int(10 ** max((source.scale or 0) - digits, 0))
    up = int(10 ** max((call.type.scale or 0) - digits, 0))

    def truncate(value: int) -> int:
        return (value // unit if value >= 0 else -(-value // unit)) * up

    return (lambda value: value) if unit == 1 else truncate


def _extreme_of(of: Callable[..., Any]) -> Callable[[Call], Function]:
    def extreme(call: Call) -> Function:
        if call.type.floating:  # NaN is the greatest value
            return lambda *values: of(values, key=lambda value: (value != value, value))
        return lambda *values: of(values)

    return extreme


def _square_root(value: float) -> float:
    if value < 0:
        raise EvaluationError("not defined, or too large")
    return math.sqrt(value)


# --- strings -------------------------------------------------------------------------------------


def _substring(text: str, start: int, length: int | None = None) -> str:
    """Return a part from a position that counts from 1, or from the end if it is negative."""
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
    for index, character in enumerate(known):
        table.setdefault(ord(character), ord(instead[index]) if index < len(instead) else None)
    return text.translate(table)


def _concat_ws(separator: str, *values: str | None) -> str:
    return separator.join(value for value in values if value is not None)


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _replace(text: str, search: str, replacement: str) -> str:
    return text.replace(search, replacement) if search else text


# --- moments -------------------------------------------------------------------------------------


def _day_reader(sql_type: SqlType) -> Callable[[int], date]:
    if sql_type.kind is Kind.DATE:
        return lambda value: _FIRST_DAY + timedelta(days=value)
    return lambda value: _FIRST_DAY + timedelta(days=value // _DAY_US)


def _day_part(part: Callable[[date], int]) -> Callable[[Call], Function]:
    def of(call: Call) -> Function:
        day = _day_reader(call.arguments[0].type)
        return lambda value: part(day(value))

    return of


def _time_part(unit: str, count: int) -> Callable[[Call], Function]:
    return lambda call: lambda value: value // UNITS_US[unit] % count


def _timestampadd(call: Call) -> Function:
    unit, target = _constant(call, 0, ""), call.type
    of_date = target.kind is Kind.DATE

    def add(_: str, count: int, moment: int) -> int:
        if unit in UNITS_MONTHS:
            day = moment if of_date else moment // _DAY_US
            moved = _add_months(day, count * UNITS_MONTHS[unit])
            return moved if of_date else moved * _DAY_US + moment % _DAY_US
        later = moment + count * UNITS_US[unit] // (_DAY_US if of_date else 1)
        _check_day(later if of_date else later // _DAY_US)
        return later

    return add


def _check_day(day: int) -> int:
    if not date.min.toordinal() <= day + _FIRST_DAY.toordinal() <= date.max.toordinal():
        raise EvaluationError("there is no such value")
    return day


def _add_months(day: int, months: int) -> int:
    """Return the same day of another month, or the month's last day."""
    known = _FIRST_DAY + timedelta(days=day)
    year, month = divmod(known.year * 12 + known.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise EvaluationError("there is no such value")
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
    """Return the whole months from one moment to another, rounded toward zero."""
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

    def truncate(_: str, moment: int) -> int:
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

    return truncate


def _date_format(call: Call) -> Function:
    print_moment, unit = (
        moment_printer(_constant(call, 1, "")),
        _microseconds(call.arguments[0].type),
    )
    return lambda value: print_moment(value * unit)


def _microseconds(sql_type: SqlType) -> int:
    """Return the microseconds of a unit of this type's values."""
    return _DAY_US if sql_type.kind is Kind.DATE else 1


def _read_moment(call: Call) -> Function:
    read, unit = moment_reader(_constant(call, 1, "")), _microseconds(call.type)
    return lambda text: read(text) // unit


def _stamp_of_number(call: Call) -> Function:
    unit = UNITS_US["MILLISECOND" if _constant(call, 1, 0) else "SECOND"]

    def to_stamp(number: int) -> int:
        _check_day(number * unit // _DAY_US)
        return number * unit

    return to_stamp


def _with_constants(make: Callable[[Call], Function]) -> Callable[[Call], Function]:
    """Ignore the arguments after the first: `make` has read these constants already."""

    def of(call: Call) -> Function:
        function = make(call)
        return lambda value, *_: function(value)

    return of


def _with_path(make: Callable[[str], Function]) -> Callable[[Call], Function]:
    return _with_constants(lambda call: make(_constant(call, 1, "")))


def _of_floats(function: Function) -> Callable[[Call], Function]:
    return lambda call: lambda *values: canonical_float(function(*values))


def _same_for_all(function: Function) -> Callable[[Call], Function]:
    return lambda call: function


FUNCTIONS: dict[str, Callable[[Call], Function]] = {
    "ABS": _abs,
    "SIGN": _sign,
    "FLOOR": _rounding_function(ROUND_FLOOR),
    "CEIL": _rounding_function(ROUND_CEILING),
    "ROUND": _with_constants(_round),
    "TRUNCATE": _with_constants(_truncate),
    "GREATEST": _extreme_of(max),
    "LEAST": _extreme_of(min),
    "SQRT": _same_for_all(_square_root),
    "EXP": _of_floats(strict_math.exponential),
    "LN": _of_floats(strict_math.natural_logarithm),
    "LOG10": _of_floats(strict_math.logarithm_to_10),
    "LOG2": _of_floats(strict_math.logarithm_to_2),
    "LOG": _of_floats(strict_math.logarithm),
    "POWER": _of_floats(strict_math.power),
    "UPPER": _same_for_all(texts.upper),
    "LOWER": _same_for_all(texts.lower),
    "TRIM": _same_for_all(lambda text: text.strip(" ")),
    "LTRIM": _same_for_all(lambda text, characters=" ": text.lstrip(characters)),
    "RTRIM": _same_for_all(lambda text, characters=" ": text.rstrip(characters)),
    "BTRIM": _same_for_all(lambda text, characters: text.strip(characters)),
    "REPLACE": _same_for_all(_replace),
    "SUBSTRING": _same_for_all(_substring),
    "LEFT": _same_for_all(lambda text, length: text[: max(length, 0)]),
    "RIGHT": _same_for_all(lambda text, length: text[-length:] if length > 0 else ""),
    "CONCAT": _same_for_all(lambda *values: "".join(values)),
    "CONCAT_WS": _same_for_all(_concat_ws),
    "CHAR_LENGTH": _same_for_all(len),
    "REVERSE": _same_for_all(lambda text: text[::-1]),
    "REPEAT": _same_for_all(lambda text, count: text * count),
    "LPAD": _pad(left=True),
    "RPAD": _pad(left=False),
    "TRANSLATE": _same_for_all(_translate),
    "SPLIT_INDEX": _same_for_all(_split_index),
    "POSITION": _same_for_all(lambda part, text: text.find(part) + 1),
    "STARTSWITH": _same_for_all(lambda text, part: text.startswith(part)),
    "ENDSWITH": _same_for_all(lambda text, part: text.endswith(part)),
    "MD5": _same_for_all(_md5),
    "SHA256": _same_for_all(lambda text: hashlib.sha256(text.encode()).hexdigest()),
    "YEAR": _day_part(lambda day: day.year),
    "QUARTER": _day_part(lambda day: (day.month + 2) // 3),
    "MONTH": _day_part(lambda day: day.month),
    "WEEK": _day_part(lambda day: day.isocalendar().week),
    "DAYOFYEAR": _day_part(lambda day: day.timetuple().tm_yday),
    "DAYOFMONTH": _day_part(lambda day: day.day),
    "DAYOFWEEK": _day_part(lambda day: day.isoweekday() % 7 + 1),
    "HOUR": _time_part("HOUR", 24),
    "MINUTE": _time_part("MINUTE", 60),
    "SECOND": _time_part("SECOND", 60),
    "TIMESTAMPADD": _timestampadd,
    "TIMESTAMPDIFF": _timestampdiff,
    "DATE_TRUNC": _date_trunc,
    "DATE_FORMAT": _with_constants(_date_format),
    "TO_DATE": _with_constants(_read_moment),
    "TO_TIMESTAMP": _with_constants(_read_moment),
    "TO_TIMESTAMP_LTZ": _with_constants(_stamp_of_number),
    "JSON_VALUE": _with_path(json_texts.json_value),
    "JSON_QUERY": _with_path(json_texts.json_query),
    "JSON_EXISTS": _with_path(json_texts.json_exists),
}
