"""Convert values between JSON and retally, exactly.

    JSON scalar ── converter ──► Value ── renderer ──► typed JSON ── parser ──► the same Value

`converter` reads the fields of a source (canal sends every field as text). It follows Flink, but
never truncates, wraps or nulls a value: it raises ValueError if the value does not fit the column.
`renderer` writes the JSON that retally publishes and answers; `parser` reads exactly this JSON.

Rendered values: integers and floats are numbers. DECIMAL is text with `scale` digits. Times are
text with as many fraction digits as needed (none for a whole second). TIMESTAMP_LTZ ends with Z.
BINARY is base64. NaN and infinities are text. A FLOAT is the shortest decimal that reads back as
the same 32-bit float.
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
from jobs.core.values.composite_values import array_renderer, refusing_converter, row_renderer
from jobs.core.values.exact_numbers import to_float32
from jobs.core.values.float_values import NAN, canonical_float, round_to_odd, shortest_float
from jobs.core.values.json_text import JsonNumber, describe
from schemas import limits
from schemas.types.json_types import JsonObject
from schemas.types.sql_types import COMPOSITE, Kind, SqlType, integer_range

TimestampFormat = Literal["sql", "iso"]
Json = bool | int | float | str | list[Any] | JsonObject | None
Converter = Callable[[object], Value]
Renderer = Callable[[Value], Json]

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_MICROSECONDS_A_SECOND = 1_000_000
_SECONDS_A_DAY = 86_400
_MICROSECONDS_A_DAY = _SECONDS_A_DAY * _MICROSECONDS_A_SECOND
_HOURS_A_DAY = 24
_SIXTIETHS = 60
_DAYS_CACHED = 4_096
_PARSERS_CACHED = 256

# Characters that Java's trim() removes: all up to the blank.
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
# Precise enough for any DECIMAL with a carry, with exponents that never overflow.
_WIDE = Context(prec=80, Emax=999_999_999, Emin=-999_999_999)


def converter(sql_type: SqlType, timestamp_format: TimestampFormat = "sql") -> Converter:
    """Return a function from JSON scalars to values of `sql_type`; NULL stays NULL."""
    convert = _non_null_converter(sql_type, timestamp_format)

    def nullable(field: object) -> Value:
        return None if field is None else convert(field)

    return nullable


@lru_cache(_PARSERS_CACHED)  # each lookup of a group needs the parsers of its columns
def parser(sql_type: SqlType) -> Converter:
    """Return the inverse of `renderer`. It refuses a JSON value of the wrong type."""
    expected = {Kind.STRING: str, Kind.BOOLEAN: bool}.get(sql_type.kind)
    if expected is None:
        return converter(sql_type)
    convert = converter(sql_type)

    def convert_typed(field: object) -> Value:
        if field is not None and (not isinstance(field, expected) or _is_number(field)):
            raise ValueError(f"{describe(field)} is not a valid {sql_type}")
        return convert(field)

    return convert_typed


def parse(field: object, sql_type: SqlType) -> Value:
    """Parse one value of typed JSON. In a loop, use a `parser`."""
    return parser(sql_type)(field)


def renderer(sql_type: SqlType) -> Renderer:
    """Return a function from values of `sql_type` to typed JSON; NULL stays NULL."""
    make = _RENDERERS.get(sql_type.kind)
    if make is None:
        return _keep
    write = make(sql_type)

    def nullable(value: Value) -> Json:
        return None if value is None else write(value)

    return nullable


def render(value: Value, sql_type: SqlType) -> Json:
    """Return one value as typed JSON. In a loop, use a `renderer`."""
    return renderer(sql_type)(value)


# --- from JSON ------------------------------------------------------------------------------


def _non_null_converter(sql_type: SqlType, timestamp_format: TimestampFormat) -> Converter:
    kind = sql_type.kind
    if kind in COMPOSITE:
        return refusing_converter(sql_type)
    if sql_type.integer:
        return _integer_converter(sql_type)
    if kind is Kind.DECIMAL:
        return _decimal_converter(sql_type)
    if kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ):
        return _timestamp_converter(sql_type, timestamp_format)
    scalar: dict[Kind, Converter] = {
        Kind.BOOLEAN: _to_boolean,
        Kind.FLOAT: _to_float,
        Kind.DOUBLE: _to_double,
        Kind.STRING: _to_string,
        Kind.DATE: _to_date,
        Kind.TIME: _to_time,
        Kind.BINARY: _to_binary,
    }
    return scalar[kind]


def _is_number(field: object) -> bool:
    number = isinstance(field, JsonNumber | int | float | Decimal)
    return number and not isinstance(field, bool)


def _scalar_text(field: object, sql_type: str) -> str:
    if isinstance(field, str):
        text = str(field)
        if isinstance(field, JsonNumber) and len(text) > limits.NUMBER_CHARACTERS_MAX:
            raise ValueError(
                f"the number has {len(text)} characters; the limit is "
                f"{limits.NUMBER_CHARACTERS_MAX}"
            )
        return text
    if isinstance(field, bool):
        return "true" if field else "false"
    if isinstance(field, int | float | Decimal):
        return str(field)
    raise ValueError(f"{describe(field)} is not a valid {sql_type}")


def _to_boolean(field: object) -> bool:
    if isinstance(field, bool):
        return field
    text = _scalar_text(field, "BOOLEAN").strip(_TRIMMED)
    truth = _TRUTH.get(text.lower())
    if truth is None and _WHOLE.fullmatch(text):
        truth = any(map(int, text.lstrip("+-")))  # as MySQL's tinyint(1): all but 0 is true
    elif truth is None and _is_number(field) and _NUMBER.fullmatch(text):
        number = Decimal(text)
        truth = number != 0 if number == number.to_integral_value() else None
    if truth is None:
        raise ValueError(f"{describe(field)} is not a valid BOOLEAN: true, false or a whole number")
    return truth


def _integer_converter(sql_type: SqlType) -> Converter:
    low, high = integer_range(sql_type)

    def convert(field: object) -> int:
        text = _scalar_text(field, str(sql_type)).strip(_TRIMMED)
        if len(text) <= limits.NUMBER_CHARACTERS_MAX and _WHOLE.fullmatch(text):
            number = int(text)
        elif _is_number(field) and _NUMBER.fullmatch(text):
            number = _to_whole_number(Decimal(text), sql_type, high)
        else:
            raise ValueError(f"{describe(field)} is not a valid {sql_type}")
        if not low <= number <= high:
            raise ValueError(f"{describe(field)} does not fit {sql_type} ({low} to {high})")
        return number

    return convert


def _to_whole_number(number: Decimal, sql_type: SqlType, high: int) -> int:
    """Return a JSON number such as 1e3 as an integer; check its size before expanding digits."""
    if number and number.adjusted() > len(str(high)):
        raise ValueError(f"{describe(JsonNumber(number))} does not fit {sql_type}")
    if number != number.to_integral_value():
        raise ValueError(f"{describe(JsonNumber(number))} has a fraction; {sql_type} has none")
    return int(number)


def _to_double(field: object) -> float:
    return _parse_floating(field, "DOUBLE", float)


def _to_float(field: object) -> float:
    # As in Flink, a JSON number becomes a double first.
    to_double = float if _is_number(field) else round_to_odd
    return _parse_floating(field, "FLOAT", lambda text: to_float32(to_double(text)))


def _parse_floating(field: object, sql_type: str, nearest: Callable[[str], float]) -> float:
    text = _scalar_text(field, sql_type).strip(_TRIMMED)
    if _NUMBER.fullmatch(text):
        number = nearest(text) + 0.0
        if math.isinf(number):
            raise ValueError(f"{describe(field)} does not fit {sql_type}")
        return number
    # Only texts have Java's spelling; Python writes its own non-finite floats in lower case.
    if isinstance(field, float) and not isinstance(field, str):
        return canonical_float(field)
    return _parse_non_finite(text, field, sql_type)


def _parse_non_finite(text: str, field: object, sql_type: str) -> float:
    sign, word = (text[0], text[1:]) if text[:1] in ("+", "-") else ("+", text)
    if word == "NaN":
        return NAN
    if word == "Infinity":
        return -math.inf if sign == "-" else math.inf
    raise ValueError(f"{describe(field)} is not a valid {sql_type}")


def _decimal_converter(sql_type: SqlType) -> Converter:
    scale = sql_type.scale or 0
    whole_digits = (sql_type.precision or 0) - scale
    unit = Decimal(1).scaleb(-scale)
    limit: int = 10 ** (sql_type.precision or 0)

    def convert(field: object) -> int:
        text = _scalar_text(field, str(sql_type))
        if _NUMBER.fullmatch(text) is None:
            raise ValueError(f"{describe(field)} is not a valid {sql_type}")
        number = Decimal(text)
        if not number:
            return 0
        # Check the size before rounding, so that 1e999999999 is never expanded.
        units = limit
        if number.adjusted() < whole_digits:
            rounded = number.quantize(unit, ROUND_HALF_UP, _WIDE)
            units = int(rounded.scaleb(scale, _WIDE))
        if abs(units) >= limit:
            raise ValueError(f"{describe(field)} does not fit {sql_type}")
        return units

    return convert


def _to_string(field: object) -> str:
    if isinstance(field, dict | list):
        text = _compact_json(field)
    elif isinstance(field, JsonNumber | float | Decimal):
        text = _java_number_text(_scalar_text(field, "STRING"))
    else:
        text = _scalar_text(field, "STRING")
    if not text.isascii():
        try:
            text.encode("utf-8", "strict")
        except UnicodeEncodeError as error:
            code = ord(text[error.start])
            raise ValueError(f"lone surrogate U+{code:04X} at character {error.start}") from None
    return text


def _java_number_text(text: str) -> str:
    """Return a JSON number as Java prints it (1.50 as 1.5), or as it is if no double equals it."""
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


def _compact_json(node: object, levels: int = limits.MESSAGE_DEPTH_MAX) -> str:
    """Return an object or array as compact JSON, with its numbers as Java prints them."""
    if not levels:
        raise ValueError(f"nested deeper than {limits.MESSAGE_DEPTH_MAX} levels")
    if isinstance(node, dict):
        members = [f"{_quote(key)}:{_compact_json(node[key], levels - 1)}" for key in node]
        return "{" + ",".join(members) + "}"
    if isinstance(node, list):
        return "[" + ",".join([_compact_json(element, levels - 1) for element in node]) + "]"
    if node is None:
        return "null"
    if isinstance(node, str) and not isinstance(node, JsonNumber):
        return _quote(node)
    return _to_string(node)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


@lru_cache(_DAYS_CACHED)
def _parse_day(text: str) -> int:
    """Return days since 1970-01-01; accept only YYYY-MM-DD and only days that exist."""
    if _DATE.fullmatch(text) is None:
        raise ValueError(f"{describe(text)} is not a valid DATE such as 2020-05-13")
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH_ORDINAL
    except ValueError:
        raise ValueError(f"{describe(text)} is not a day of the calendar") from None


def _to_date(field: object) -> int:
    return _parse_day(_scalar_text(field, "DATE"))


def _to_time(field: object) -> str:
    match = _TIME.fullmatch(_scalar_text(field, "TIME"))
    if match is None:
        raise ValueError(f"{describe(field)} is not a valid TIME such as 12:38:35")
    hour, minute, second, fraction = match.groups()
    digits = (fraction or "").rstrip("0")
    seconds = _seconds_of_day(hour, minute, second, digits, field)
    if seconds == _SECONDS_A_DAY:
        return "00:00:00"
    return f"{hour}:{minute}:{second}.{digits}".rstrip(".")


def _seconds_of_day(hour: str, minute: str, second: str, fraction: str, field: object) -> int:
    """Return seconds since midnight. Hour 24 is valid in 24:00:00 only, the end of the day."""
    hours, minutes, seconds = int(hour), int(minute), int(second)
    total = (hours * _SIXTIETHS + minutes) * _SIXTIETHS + seconds
    end_of_day = hours == _HOURS_A_DAY and not (minutes or seconds or fraction.strip("0"))
    if not end_of_day and (hours >= _HOURS_A_DAY or minutes >= _SIXTIETHS or seconds >= _SIXTIETHS):
        raise ValueError(f"{describe(field)} is not a time of day")
    return total


def _timestamp_converter(sql_type: SqlType, timestamp_format: TimestampFormat) -> Converter:
    pattern = _STAMP[timestamp_format]
    zone = "Z" if sql_type.kind is Kind.TIMESTAMP_LTZ else ""
    example = _STAMP_EXAMPLE[timestamp_format] + zone
    textual = sql_type.textual_time

    def convert(field: object) -> int | str:
        match = pattern.fullmatch(_scalar_text(field, str(sql_type)))
        if match is None or match[6] != zone:
            raise ValueError(f"{describe(field)} is not a valid {sql_type} such as {example}")
        day, hour, minute, second, fraction, _ = match.groups()
        nanoseconds = (fraction or "").ljust(9, "0")
        seconds = _seconds_of_day(hour, minute, second or "00", nanoseconds, field)
        micros = _parse_day(day) * _MICROSECONDS_A_DAY + seconds * _MICROSECONDS_A_SECOND
        if seconds == _SECONDS_A_DAY:
            _day_text(micros // _MICROSECONDS_A_DAY)  # fails after 9999-12-31
        if textual:
            return f"{_timestamp_text(micros)}.{nanoseconds}"
        if nanoseconds[6:] != "000":
            raise ValueError(
                f"{describe(field)} has digits beyond microseconds; declare {sql_type.kind}(9)"
            )
        return micros + int(nanoseconds[:6])

    return convert


def _to_binary(field: object) -> bytes:
    if not isinstance(field, str) or isinstance(field, JsonNumber):
        raise ValueError(f"{describe(field)} is not a valid BINARY (base64)")
    try:
        return binascii.a2b_base64(field, strict_mode=True)
    except ValueError as error:
        raise ValueError(f"{describe(field)} is not base64: {error}") from None


# --- to JSON --------------------------------------------------------------------------------


def _keep(value: Value) -> Json:
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
        return _day_text(value)

    return write


def _timestamp_renderer(sql_type: SqlType) -> Renderer:
    zone = "Z" if sql_type.kind is Kind.TIMESTAMP_LTZ else ""

    def write(value: Value) -> Json:
        if isinstance(value, str):
            whole, _, fraction = value.partition(".")
        else:
            assert isinstance(value, int)
            whole = _timestamp_text(value)
            fraction = f"{value % _MICROSECONDS_A_SECOND:06d}"
        fraction = fraction.rstrip("0")
        return f"{whole}.{fraction}{zone}" if fraction else whole + zone

    return write


def _binary_renderer(sql_type: SqlType) -> Renderer:
    def write(value: Value) -> Json:
        assert isinstance(value, bytes)
        return base64.b64encode(value).decode("ascii")

    return write


def _day_text(days: int) -> str:
    try:
        return date.fromordinal(days + _EPOCH_ORDINAL).isoformat()
    except (ValueError, OverflowError):
        raise ValueError(f"{days} days since 1970-01-01 is outside the years 1 to 9999") from None


def _timestamp_text(micros: int) -> str:
    days, rest = divmod(micros, _MICROSECONDS_A_DAY)
    minutes, second = divmod(rest // _MICROSECONDS_A_SECOND, _SIXTIETHS)
    hour, minute = divmod(minutes, _SIXTIETHS)
    return f"{_day_text(days)} {hour:02d}:{minute:02d}:{second:02d}"


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
