"""Cast values, of rows and of a group's results."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from jobs.core.evaluate.text_casts import text_reader
from jobs.core.evaluate.texts import double_text, float_text
from jobs.core.values.exact_numbers import FLOAT_UNIT_BITS, round_to_double, round_to_float
from jobs.core.values.rounding import EvaluationError, check_integer_range, fit_decimal
from schemas.types.sql_types import BIGINT, BOOLEAN, STRING, Kind, SqlType, integer_range

Conversion = Callable[[Any], Any]
_DAY_US = 86_400_000_000
_INSTANTS = (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ)
_EPOCH = datetime(1970, 1, 1)


def cast_function(source: SqlType, target: SqlType) -> Conversion:
    """Return a function that casts a non-NULL value; it may raise EvaluationError."""
    if source == STRING:
        return text_reader(target)
    if target == STRING:
        return _to_text(source)
    if source.kind in (Kind.DATE, *_INSTANTS):
        return _moment_cast(source, target)
    if target == BOOLEAN:
        return lambda value: value != 0
    if source == BOOLEAN:
        source = BIGINT  # as 1 and 0
        return lambda value: cast_function(BIGINT, target)(int(value))
    if source.floating:
        return _from_float(source, target)
    return _from_exact(source.scale or 0, target)


def _from_exact(scale: int, target: SqlType) -> Conversion:
    unit = 10**scale
    if target.integer:
        return lambda value: check_integer_range(
            value // unit if value >= 0 else -(-value // unit), target
        )
    if target.floating:
        nearest = round_to_float if target.kind is Kind.FLOAT else round_to_double
        return lambda value: nearest(value << FLOAT_UNIT_BITS, unit)
    return lambda value: fit_decimal(value, scale, target)


def _from_float(source: SqlType, target: SqlType) -> Conversion:
    if target.floating:
        return _to_float if target.kind is Kind.FLOAT else float
    if target.integer:
        return lambda value: _truncate_float(value, target)

    def units(value: float) -> int:
        if value - value != 0:  # NaN or infinite
            raise EvaluationError(f"does not fit {target}")
        _, digits, exponent = Decimal(repr(value)).as_tuple()
        assert isinstance(exponent, int)
        number = int("".join(map(str, digits))) * (-1 if value < 0 else 1)
        if exponent > 0:
            number, exponent = number * 10**exponent, 0
        return fit_decimal(number, -exponent, target)

    return units


def _to_float(value: float) -> float:
    if value - value != 0:
        return value
    numerator, denominator = value.as_integer_ratio()
    rounded = round_to_float(numerator << FLOAT_UNIT_BITS, denominator)
    if rounded - rounded != 0:
        raise EvaluationError("does not fit FLOAT")
    return rounded


def _truncate_float(value: float, target: SqlType) -> int:
    if value - value != 0:
        raise EvaluationError(f"does not fit {target}")
    whole = int(value)
    high = integer_range(target)[1]
    if target == BIGINT and whole == high + 1:  # the double nearest to the largest BIGINT
        return high
    return check_integer_range(whole, target)


def _moment_cast(source: SqlType, target: SqlType) -> Conversion:
    if target.kind is Kind.DATE:
        return lambda value: value // _DAY_US
    if source.kind is Kind.DATE:
        return lambda value: value * _DAY_US
    if (source.precision or 0) <= (target.precision or 0):
        return lambda value: value  # which may have more digits than its column declares
    unit = 10 ** (6 - (target.precision or 0))
    return lambda value: value - value % unit


def _to_text(source: SqlType) -> Conversion:
    if source == BOOLEAN:
        return lambda value: "TRUE" if value else "FALSE"
    if source.kind is Kind.BINARY:
        return _decode_utf8
    if source.kind is Kind.DATE:
        return lambda value: (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    if source.kind in _INSTANTS:
        return lambda value: stamp_text(value, source.precision or 0)
    if source.floating:
        return float_text if source.kind is Kind.FLOAT else double_text
    if source.scale:
        return lambda value: _decimal_text(value, source.scale or 0)
    return str


def _decode_utf8(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("the bytes are not UTF-8") from None


def stamp_text(micros: int, precision: int) -> str:
    """Return a timestamp as text, with so many fraction digits."""
    moment = _EPOCH + timedelta(microseconds=micros)
    fraction = f".{moment.microsecond:06}"[: precision + 1] if precision else ""
    return moment.isoformat(" ", "seconds") + fraction


def _decimal_text(units: int, scale: int) -> str:
    digits = str(abs(units)).rjust(scale + 1, "0")
    return f"{'-' if units < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"
