"""Values between JSON and retally: text in, text out, exactly.

    JSON scalar ── converter ──► Value ── renderer ──► typed JSON ── parser ──► the same Value

`converter` reads what a source sends (canal sends everything as text) and follows Flink, except
that nothing is ever cut, wrapped or nulled: what does not fit its column is a ValueError.
`renderer` writes what we publish and answer; `parser` reads exactly that back.

Rendered: integers and floats as numbers, DECIMAL as text with `scale` digits, times as text with
as many fraction digits as the value needs (none for a whole second), TIMESTAMP_LTZ with a
trailing Z, BINARY in base64, NaN and the infinities as text. A FLOAT is the shortest decimal
that reads back as the same 32-bit float.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable
from datetime import date
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from typing import Any, Literal

from jobs.core.values.change import Value
from jobs.core.values.composite_values import array_renderer, no_value, row_renderer
from jobs.core.values.float_values import (
    NAN,
    canonical_float,
    nearest_float,
    rounded_to_odd,
    shortest_float,
)
from jobs.core.values.json_text import JsonNumber, shown
from schemas import limits
from schemas.types.sql_types import COMPOSITE, Kind, SqlType, integer_range

TimestampFormat = Literal["sql", "iso"]
Json = bool | int | float | str | list[Any] | None
Converter = Callable[[object], Value]
Renderer = Callable[[Value], Json]

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_MICROSECONDS_A_SECOND = 1_000_000
_SECONDS_A_DAY = 86_400
_MICROSECONDS_A_DAY = _SECONDS_A_DAY * _MICROSECONDS_A_SECOND
_HOURS_A_DAY = 24
_SIXTIETHS = 60
_DAYS_REMEMBERED = 4_096
_PARSERS_REMEMBERED = 256

# What Java's trim() removes: every character up to the blank.
_TRIMMED = "".join(map(chr, range(33)))
_WHOLE = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TRUTH = {"true": True, "false": False}
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{0,9}))?")
_STAMP = {
    "sql": re.compile(r"([0-9-]{10}) ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{0,9}))?(Z?)"),
    "iso": re.compile(r"([0-9-]{10})T([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{0,9}))?)?(Z?)"),
}
_STAMP_EXAMPLE = {"sql": "2020-05-13 12:38:35.477", "iso": "2020-05-13T12:38:35.477"}
# Wide enough for any DECIMAL with a carry, with exponents that never overflow.
_WIDE = Context(prec=80, Emax=999_999_999, Emin=-999_999_999)


def converter(sql_type: SqlType, timestamp_format: TimestampFormat = "sql") -> Converter:
    """The function that turns a JSON scalar into a value of `sql_type`; NULL stays NULL."""
    convert = _conversion(sql_type, timestamp_format)

    def nullable(field: object) -> Value:
        return None if field is None else convert(field)

    return nullable


@lru_cache(_PARSERS_REMEMBERED)  # a lookup needs the one of its group's column, each time
def parser(sql_type: SqlType) -> Converter:
    """The inverse of `renderer`: typed JSON only, so that a wrong type is seen and not guessed."""
    expected = {Kind.STRING: str, Kind.BOOLEAN: bool}.get(sql_type.kind)
    if expected is None:
        return converter(sql_type)
    convert = converter(sql_type)

    def typed(field: object) -> Value:
        if field is not None and (not isinstance(field, expected) or _is_number(field)):
            raise ValueError(f"{shown(field)} is not a valid {sql_type}")
        return convert(field)

    return typed


def parse(field: object, sql_type: SqlType) -> Value:
    """One value of typed JSON; loops take a `parser`."""
    return parser(sql_type)(field)


def renderer(sql_type: SqlType) -> Renderer:
    """The function that turns values of `sql_type` into typed JSON; NULL stays NULL."""
    make = _RENDERERS.get(sql_type.kind)
    if make is None:
        return _unchanged
    write = make(sql_type)

    def nullable(value: Value) -> Json:
        return None if value is None else write(value)

    return nullable


def render(value: Value, sql_type: SqlType) -> Json:
    """One value as typed JSON; loops take a `renderer`."""
    return renderer(sql_type)(value)


# --- from JSON ------------------------------------------------------------------------------


def _conversion(sql_type: SqlType, timestamp_format: TimestampFormat) -> Converter:
    kind = sql_type.kind
    if kind in COMPOSITE:
        return no_value(sql_type)
    if sql_type.integer:
        return _integer_converter(sql_type)
    if kind is Kind.DECIMAL:
        return _decimal_converter(sql_type)
    if kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ):
        return _timestamp_converter(sql_type, timestamp_format)
    scalar: dict[Kind, Converter] = {
        Kind.BOOLEAN: _boolean,
        Kind.FLOAT: _float,
        Kind.DOUBLE: _double,
        Kind.STRING: _string,
        Kind.DATE: _date,
        Kind.TIME: _time,
        Kind.BINARY: _binary,
    }
    return scalar[kind]


def _is_number(field: object) -> bool:
    number = isinstance(field, JsonNumber | int | float | Decimal)
    return number and not isinstance(field, bool)


def _text(field: object, sql_type: str) -> str:
    """The text of a scalar, as JSON writes it."""
    if isinstance(field, str):
        text = str(field)
        if isinstance(field, JsonNumber) and len(text) > limits.NUMBER_CHARACTERS_MAX:
            raise ValueError(
                f"a number of {len(text)} characters; at most {limits.NUMBER_CHARACTERS_MAX}"
            )
        return text
    if isinstance(field, bool):
        return "true" if field else "false"
    if isinstance(field, int | float | Decimal):
        return str(field)
    raise ValueError(f"{shown(field)} is not a valid {sql_type}")


def _boolean(field: object) -> bool:
    if isinstance(field, bool):
        return field
    text = _text(field, "BOOLEAN").strip(_TRIMMED)
    truth = _TRUTH.get(text.lower())
    if truth is None and _WHOLE.fullmatch(text):
        truth = any(map(int, text.lstrip("+-")))  # MySQL's tinyint(1): what is not 0 is true
    elif truth is None and _is_number(field) and _NUMBER.fullmatch(text):
        number = Decimal(text)
        truth = number != 0 if number == number.to_integral_value() else None
    if truth is None:
        raise ValueError(f"{shown(field)} is not a valid BOOLEAN: true, false or a whole number")
    return truth


def _integer_converter(sql_type: SqlType) -> Converter:
    low, high = integer_range(sql_type)

    def convert(field: object) -> int:
        text = _text(field, str(sql_type)).strip(_TRIMMED)
        if len(text) <= limits.NUMBER_CHARACTERS_MAX and _WHOLE.fullmatch(text):
            number = int(text)
        elif _is_number(field) and _NUMBER.fullmatch(text):
            number = _whole_number(Decimal(text), sql_type, high)
        else:
            raise ValueError(f"{shown(field)} is not a valid {sql_type}")
        if not low <= number <= high:
            raise ValueError(f"{shown(field)} does not fit {sql_type} ({low} to {high})")
        return number

    return convert


def _whole_number(number: Decimal, sql_type: SqlType, high: int) -> int:
    """A JSON number such as 1e3; its size is looked at before its digits are written out."""
    if number and number.adjusted() > len(str(high)):
        raise ValueError(f"{shown(JsonNumber(number))} does not fit {sql_type}")
    if number != number.to_integral_value():
        raise ValueError(f"{shown(JsonNumber(number))} has a fraction; {sql_type} has none")
    return int(number)


def _double(field: object) -> float:
    return _floating(field, "DOUBLE", float)


def _float(field: object) -> float:
    # A JSON number is a double first, as in Flink.
    exactly = float if _is_number(field) else rounded_to_odd
    return _floating(field, "FLOAT", lambda text: nearest_float(exactly(text)))


def _floating(field: object, sql_type: str, nearest: Callable[[str], float]) -> float:
    text = _text(field, sql_type).strip(_TRIMMED)
    if _NUMBER.fullmatch(text):
        number = nearest(text) + 0.0
        if math.isinf(number):
            raise ValueError(f"{shown(field)} does not fit {sql_type}")
        return number
    # Python writes its own non-finite floats in lower case; texts have Java's spelling.
    if isinstance(field, float) and not isinstance(field, str):
        return canonical_float(field)
    return _non_finite(text, field, sql_type)


def _non_finite(text: str, field: object, sql_type: str) -> float:
    sign, word = (text[0], text[1:]) if text[:1] in ("+", "-") else ("+", text)
    if word == "NaN":
        return NAN
    if word == "Infinity":
        return -math.inf if sign == "-" else math.inf
    raise ValueError(f"{shown(field)} is not a valid {sql_type}")


def _decimal_converter(sql_type: SqlType) -> Converter:
    scale = sql_type.scale or 0
    whole_digits = (sql_type.precision or 0) - scale
    unit = Decimal(1).scaleb(-scale)
    limit: int = 10 ** (sql_type.precision or 0)

    def convert(field: object) -> int:
        text = _text(field, str(sql_type))
        if _NUMBER.fullmatch(text) is None:
            raise ValueError(f"{shown(field)} is not a valid {sql_type}")
        number = Decimal(text)
        if not number:
            return 0
        # Looked at before rounding, so that 1e999999999 is never written out.
        units = limit
        if number.adjusted() < whole_digits:
            rounded = number.quantize(unit, ROUND_HALF_UP, _WIDE)
            units = int(rounded.scaleb(scale, _WIDE))
        if abs(units) >= limit:
            raise ValueError(f"{shown(field)} does not fit {sql_type}")
        return units

    return convert


def _string(field: object) -> str:
    if isinstance(field, dict | list):
        text = _compact(field)
    elif isinstance(field, JsonNumber | float | Decimal):
        text = _number_text(_text(field, "STRING"))
    else:
        text = _text(field, "STRING")
    if not text.isascii():
        try:
            text.encode("utf-8", "strict")
        except UnicodeEncodeError as error:
            code = ord(text[error.start])
            raise ValueError(f"lone surrogate U+{code:04X} at character {error.start}") from None
    return text


def _number_text(text: str) -> str:
    """A JSON number as Java prints it: 1.50 is 1.5; beyond a double's digits, as it was sent."""
    if _WHOLE.fullmatch(text):
        return str(int(text))
    number = float(text)
    if not math.isfinite(number):
        return text
    exact = Decimal(repr(number))
    if exact != Decimal(text):
        return text
    exact = exact.normalize()
    if not exact or -3 <= exact.adjusted() < 7:  # Java's border of plain notation
        plain = f"{exact:f}"
        return plain if "." in plain else plain + ".0"
    sign, digits, _ = exact.as_tuple()
    head, *tail = map(str, digits)
    return f"{'-' * sign}{head}.{''.join(tail) or '0'}E{exact.adjusted()}"


def _compact(node: object, levels: int = limits.MESSAGE_DEPTH_MAX) -> str:
    """An object or array as compact JSON, with its numbers as `_number_text` has them."""
    if not levels:
        raise ValueError(f"nested deeper than {limits.MESSAGE_DEPTH_MAX} levels")
    if isinstance(node, dict):
        members = [f"{_quoted(key)}:{_compact(node[key], levels - 1)}" for key in node]
        return "{" + ",".join(members) + "}"
    if isinstance(node, list):
        return "[" + ",".join([_compact(element, levels - 1) for element in node]) + "]"
    if node is None:
        return "null"
    if isinstance(node, str) and not isinstance(node, JsonNumber):
        return _quoted(node)
    return _string(node)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


@lru_cache(_DAYS_REMEMBERED)
def _days(text: str) -> int:
    """Days since 1970-01-01; only the form YYYY-MM-DD, only days that exist."""
    if _DATE.fullmatch(text) is None:
        raise ValueError(f"{shown(text)} is not a valid DATE such as 2020-05-13")
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH_ORDINAL
    except ValueError:
        raise ValueError(f"{shown(text)} is not a day of the calendar") from None


def _date(field: object) -> int:
    return _days(_text(field, "DATE"))


def _time(field: object) -> str:
    match = _TIME.fullmatch(_text(field, "TIME"))
    if match is None:
        raise ValueError(f"{shown(field)} is not a valid TIME such as 12:38:35")
    hour, minute, second, fraction = match.groups()
    digits = (fraction or "").rstrip("0")
    seconds = _seconds_of_day(hour, minute, second, digits, field)
    if seconds == _SECONDS_A_DAY:
        return "00:00:00"
    return f"{hour}:{minute}:{second}.{digits}".rstrip(".")


def _seconds_of_day(hour: str, minute: str, second: str, fraction: str, field: object) -> int:
    """Seconds since midnight; 24:00:00, the end of the day, is the one time with hour 24."""
    hours, minutes, seconds = int(hour), int(minute), int(second)
    total = (hours * _SIXTIETHS + minutes) * _SIXTIETHS + seconds
    end_of_day = hours == _HOURS_A_DAY and not (minutes or seconds or fraction.strip("0"))
    if not end_of_day and (hours >= _HOURS_A_DAY or minutes >= _SIXTIETHS or seconds >= _SIXTIETHS):
        raise ValueError(f"{shown(field)} is not a time of day")
    return total


def _timestamp_converter(sql_type: SqlType, timestamp_format: TimestampFormat) -> Converter:
    pattern = _STAMP[timestamp_format]
    zone = "Z" if sql_type.kind is Kind.TIMESTAMP_LTZ else ""
    example = _STAMP_EXAMPLE[timestamp_format] + zone
    textual = sql_type.textual_time

    def convert(field: object) -> int | str:
        match = pattern.fullmatch(_text(field, str(sql_type)))
        if match is None or match[6] != zone:
            raise ValueError(f"{shown(field)} is not a valid {sql_type} such as {example}")
        day, hour, minute, second, fraction, _ = match.groups()
        nanoseconds = (fraction or "").ljust(9, "0")
        seconds = _seconds_of_day(hour, minute, second or "00", nanoseconds, field)
        micros = _days(day) * _MICROSECONDS_A_DAY + seconds * _MICROSECONDS_A_SECOND
        if seconds == _SECONDS_A_DAY:
            _day(micros // _MICROSECONDS_A_DAY)  # the day after 9999-12-31 is none
        if textual:
            return f"{_day_and_time(micros)}.{nanoseconds}"
        if nanoseconds[6:] != "000":
            raise ValueError(
                f"{shown(field)} has digits beyond microseconds; declare {sql_type.kind}(9)"
            )
        return micros + int(nanoseconds[:6])

    return convert


def _binary(field: object) -> bytes:
    if not isinstance(field, str) or isinstance(field, JsonNumber):
        raise ValueError(f"{shown(field)} is not a valid BINARY (base64)")
    try:
        return binascii.a2b_base64(field, strict_mode=True)
    except ValueError as error:
        raise ValueError(f"{shown(field)} is not base64: {error}") from None


# --- to JSON --------------------------------------------------------------------------------


def _unchanged(value: Value) -> Json:
    assert not isinstance(value, bytes | tuple)
    return value


def _float_renderer(sql_type: SqlType) -> Renderer:
    shorten = shortest_float if sql_type.kind is Kind.FLOAT else float

    def write(value: Value) -> Json:
        assert isinstance(value, float)
        if math.isfinite(value):
            return shorten(value)
        if math.isnan(value):
            return "NaN"
        return "Infinity" if value > 0 else "-Infinity"

    return write


def _decimal_renderer(sql_type: SqlType) -> Renderer:
    scale = sql_type.scale or 0

    def write(value: Value) -> Json:
        assert isinstance(value, int)
        sign = "-" if value < 0 else ""
        digits = str(abs(value)).rjust(scale + 1, "0")
        return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else sign + digits

    return write


def _date_renderer(sql_type: SqlType) -> Renderer:
    def write(value: Value) -> Json:
        assert isinstance(value, int)
        return _day(value)

    return write


def _timestamp_renderer(sql_type: SqlType) -> Renderer:
    zone = "Z" if sql_type.kind is Kind.TIMESTAMP_LTZ else ""

    def write(value: Value) -> Json:
        if isinstance(value, str):
            whole, _, fraction = value.partition(".")
        else:
            assert isinstance(value, int)
            whole = _day_and_time(value)
            fraction = f"{value % _MICROSECONDS_A_SECOND:06d}"
        fraction = fraction.rstrip("0")
        return f"{whole}.{fraction}{zone}" if fraction else whole + zone

    return write


def _binary_renderer(sql_type: SqlType) -> Renderer:
    def write(value: Value) -> Json:
        assert isinstance(value, bytes)
        return base64.b64encode(value).decode("ascii")

    return write


def _day(days: int) -> str:
    try:
        return date.fromordinal(days + _EPOCH_ORDINAL).isoformat()
    except (ValueError, OverflowError):
        raise ValueError(f"{days} days since 1970-01-01 is outside the years 1 to 9999") from None


def _day_and_time(micros: int) -> str:
    days, rest = divmod(micros, _MICROSECONDS_A_DAY)
    minutes, second = divmod(rest // _MICROSECONDS_A_SECOND, _SIXTIETHS)
    hour, minute = divmod(minutes, _SIXTIETHS)
    return f"{_day(days)} {hour:02d}:{minute:02d}:{second:02d}"


_RENDERERS: dict[Kind, Callable[[SqlType], Renderer]] = {
    Kind.FLOAT: _float_renderer,
    Kind.DOUBLE: _float_renderer,
    Kind.DECIMAL: _decimal_renderer,
    Kind.DATE: _date_renderer,
    Kind.TIMESTAMP: _timestamp_renderer,
    Kind.TIMESTAMP_LTZ: _timestamp_renderer,
    Kind.BINARY: _binary_renderer,
    Kind.ARRAY: lambda kind: array_renderer(renderer(kind.items[0])),
    Kind.ROW: lambda kind: row_renderer([renderer(item) for item in kind.items]),
}
