"""Convert column values as Debezium encodes them to the declared types.

    column            mode of the connector                  in JSON          encoding
    DECIMAL(10, 2)    decimal.handling.mode  precise         "AJY="           base64, and the scale
                                             string, double  "1.50", 1.5      number
    DATE              any                                    18395            days
    TIME              adaptive_time_microseconds             45515000000      us
    TIMESTAMP(3)      time.precision.mode    adaptive, ...   1589373515477    ms; us for (4..6), ns
                                             connect         1589373515477    ms
    TIMESTAMP_LTZ     any but connect                        "2020-05-13T12:38:35.477Z"

A schema in the message names the encoding of each field. Without a schema the connector's modes and
the declared types decide. A text in a DECIMAL column can usually be only base64 or only a number. A
text that can be both, such as "1234", is refused until the spec names the mode.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

from jobs.core.formats.row_fields import NumberFields
from jobs.core.plan.tree import Column
from jobs.core.values.change import Value
from jobs.core.values.json_text import JsonNumber, describe
from jobs.core.values.json_values import Converter, converter
from schemas.types.sql_types import BIGINT, Kind, SqlType

# Debezium writes this text instead of a large value that did not change and was not sent.
UNAVAILABLE = "__debezium_unavailable_value"
UNAVAILABLE_BASE64 = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="


class Modes(NamedTuple):
    """The settings of the connector, in Debezium's words."""

    decimals: str = "auto"
    times: str = "adaptive_time_microseconds"


DEFAULT_MODES = Modes()


class Encoding(NamedTuple):
    """The encoding of a column; `form` is a unit of time, base64, number, auto, iso or zoned."""

    form: str = "plain"
    scale: int = 0


NO_ENCODING = Encoding()

UNITS_US = {"ms": 1_000, "us": 1}
UNITS_NS = {"ms": 1_000_000, "us": 1_000, "ns": 1}
_FORM_OF_SCHEMA: Mapping[str, str] = {
    "io.debezium.time.Date": "days",
    "io.debezium.time.Time": "ms",
    "io.debezium.time.MicroTime": "us",
    "io.debezium.time.NanoTime": "ns",
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "io.debezium.time.ZonedTime": "iso",
    "io.debezium.time.ZonedTimestamp": "zoned",
    "io.debezium.time.IsoDate": "iso",
    "io.debezium.time.IsoTime": "iso",
    "io.debezium.time.IsoTimestamp": "iso",
    "org.apache.kafka.connect.data.Date": "days",
    "org.apache.kafka.connect.data.Time": "ms",
    "org.apache.kafka.connect.data.Timestamp": "ms",
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_TIMES = (Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ)

_MICROSECONDS_A_SECOND = 1_000_000
_EPOCH = datetime(1970, 1, 1)
_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)
_DAYS_LOW = (date.min - _EPOCH.date()) // _DAY
_DAYS_HIGH = (date.max - _EPOCH.date()) // _DAY
_MICROS_LOW = (datetime.min - _EPOCH) // _MICROSECOND
_MICROS_HIGH = (datetime.max - _EPOCH) // _MICROSECOND
DAYS, MICROSECONDS = (_DAYS_LOW, _DAYS_HIGH), (_MICROS_LOW, _MICROS_HIGH)  # since 1970
_NANOSECONDS_A_DAY = 86_400_000_000_000

_PLAIN_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?")
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_UNSCALED_BYTES_MAX = 64  # DECIMAL(38) takes 16
_ZONE = re.compile(r"(.*)([+-])([0-9]{2}):([0-9]{2})")


class DebeziumFields(NumberFields):
    """The columns of `before` and `after`, each with its encoding."""

    def __init__(
        self,
        columns: tuple[Column, ...],
        used: tuple[Column, ...],
        encodings: tuple[Encoding, ...],
        *,
        missing_is_null: bool,
    ) -> None:
        super().__init__(columns, used, converter, missing_is_null=missing_is_null)
        self.encodings = encodings
        pairs = zip(columns, encodings, strict=True)
        self.converters = tuple(debezium_converter(c.type, encoding) for c, encoding in pairs)

    def json_type(self, index: int) -> Any:
        if self.columns[index].type.kind in _TIMES:
            return str | int | None
        return super().json_type(index)

    def _field_lines(self, index: int, field: str, value: str) -> Iterator[str]:
        """Yield lines for a field. Instants have too many values for the cache: multiply them."""
        sql_type, form = self.columns[index].type, self.encodings[index].form
        instant = sql_type.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ)
        factor = UNITS_US.get(form)
        if not instant or sql_type.textual_time or factor is None:
            yield from super()._field_lines(index, field, value)
            return
        low, high = -(-_MICROS_LOW // factor), _MICROS_HIGH // factor
        yield f"{value} = {field}"
        yield f"if {value}.__class__ is int and {low} <= {value} <= {high}:"
        yield f"    {value} *= {factor}"
        yield "else:"
        yield f"    {value} = memo{index}[{value}]"


# --- encodings ------------------------------------------------------------------------------


def default_encodings(columns: Iterable[Column], modes: Modes) -> tuple[Encoding, ...]:
    """Return the encodings of messages without a schema."""
    return tuple(_mode_encoding(column.type, modes) for column in columns)


def _mode_encoding(sql_type: SqlType, modes: Modes) -> Encoding:
    if sql_type.kind is Kind.DECIMAL:
        form = {"auto": "auto", "precise": "base64"}.get(modes.decimals, "number")
        return Encoding(form, sql_type.scale or 0)
    if sql_type.kind is Kind.DATE:
        return Encoding("iso" if modes.times == "isostring" else "days")
    forms = {"connect": "ms", "microseconds": "us", "nanoseconds": "ns", "isostring": "iso"}
    if sql_type.kind is Kind.TIME:
        return Encoding({**forms, "adaptive": "unknown"}.get(modes.times, "us"))
    if sql_type.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ):
        digits = sql_type.precision or 0
        adaptive = "ms" if digits <= 3 else "us" if digits <= 6 else "ns"
        return Encoding(forms.get(modes.times, adaptive))
    return NO_ENCODING


def schema_encodings(
    schema: object, columns: Iterable[Column], modes: Modes
) -> tuple[Encoding, ...] | None:
    """Return the encodings that a message's schema names, or None if it describes no rows."""
    fields = _schema_fields(_schema_field(schema, "after") or _schema_field(schema, "before"))
    if fields is None:
        return None
    return tuple(schema_encoding(fields.get(column.name), column.type, modes) for column in columns)


def schema_encoding(field: object, sql_type: SqlType, modes: Modes) -> Encoding:
    """Return the encoding of a column whose field a schema of Kafka Connect describes."""
    node = field if isinstance(field, dict) else {}
    name = node.get("name")
    if sql_type.kind is Kind.DECIMAL:
        if name != _DECIMAL:
            return Encoding("number")
        parameters = node.get("parameters")
        scale = parameters.get("scale") if isinstance(parameters, dict) else None
        known = isinstance(scale, str) and re.fullmatch(r"[0-9]{1,3}", scale) is not None
        return Encoding("base64", int(scale) if known else sql_type.scale or 0)  # type: ignore[arg-type]
    if sql_type.kind in _TIMES and isinstance(name, str) and name in _FORM_OF_SCHEMA:
        return Encoding(_FORM_OF_SCHEMA[name])
    return _mode_encoding(sql_type, modes)


def _schema_fields(schema: object) -> dict[object, Any] | None:
    fields = schema.get("fields") if isinstance(schema, dict) else None
    if not isinstance(fields, list):
        return None
    return {node.get("field"): node for node in fields if isinstance(node, dict)}


def _schema_field(schema: object, name: str) -> Any:
    fields = _schema_fields(schema)
    return None if fields is None else fields.get(name)


# --- values ---------------------------------------------------------------------------------


def debezium_converter(sql_type: SqlType, encoding: Encoding) -> Converter:
    """Return a function from fields of `before` and `after` to values of `sql_type`."""
    kind = sql_type.kind
    if kind is Kind.DECIMAL:
        return _decimal_converter(sql_type, encoding)
    if kind in _TIMES:
        return _time_converter(sql_type, encoding)
    convert = converter(sql_type)

    def available(field: object) -> Value:
        if field in (UNAVAILABLE, UNAVAILABLE_BASE64):
            raise ValueError(
                "the database did not send this large value, because it did not change; the "
                "table needs REPLICA IDENTITY FULL"
            )
        return convert(field)

    return available


def _decimal_converter(sql_type: SqlType, encoding: Encoding) -> Converter:
    convert, (form, scale) = converter(sql_type), encoding

    def convert_base64(text: str) -> Value:
        try:
            raw = binascii.a2b_base64(text, strict_mode=True)
        except ValueError as error:
            hint = "; is decimal.handling.mode string?" if _PLAIN_NUMBER.fullmatch(text) else ""
            raise ValueError(
                f"{describe(text)} is not a decimal in base64: {error}{hint}"
            ) from None
        if not 0 < len(raw) <= _UNSCALED_BYTES_MAX:
            raise ValueError(f"{describe(text)} has {len(raw)} bytes, more than any {sql_type}")
        return convert(f"{int.from_bytes(raw, 'big', signed=True)}E{-scale}")

    def convert_field(field: object) -> Value:
        if isinstance(field, dict) and field.keys() == {"scale", "value"}:  # VariableScaleDecimal
            own = Encoding("base64", int(str(field["scale"])))
            return _decimal_converter(sql_type, own)(field["value"])
        if isinstance(field, JsonNumber) or not isinstance(field, str) or form == "number":
            return convert(field)
        if form == "base64" or _PLAIN_NUMBER.fullmatch(field) is None:
            return convert_base64(field)
        if _BASE64.fullmatch(field) is None:
            return convert(field)
        raise ValueError(
            f"{describe(field)} can be a number or base64; set "
            "source.debezium.decimal_handling_mode to string or precise"
        )

    return convert_field


def _time_converter(sql_type: SqlType, encoding: Encoding) -> Converter:
    convert_text = _text_converter(sql_type, encoding.form)
    convert_number = _number_converter(sql_type, encoding)
    to_integer = converter(BIGINT)

    def convert(field: object) -> Value:
        if field is None:
            return None
        if isinstance(field, str) and not isinstance(field, JsonNumber):
            return convert_text(field)
        number = None if isinstance(field, bool | list | dict) else to_integer(field)
        if not isinstance(number, int):
            raise ValueError(f"{describe(field)} is not a valid {sql_type}")
        return convert_number(number)

    return convert


def _text_converter(sql_type: SqlType, form: str) -> Callable[[str], Value]:
    """Return a converter of times as text, in Debezium's form or in SQL's.

    A type without a zone ignores a Z only if Debezium is known to write one (form iso)."""
    sql, iso = converter(sql_type, "sql"), converter(sql_type, "iso")
    local_zone = sql_type.kind is Kind.TIMESTAMP_LTZ

    def convert(text: str) -> Value:
        if form == "iso" and not local_zone:
            text = text.removesuffix("Z")
        zone = _ZONE.fullmatch(text) if local_zone else None
        if zone:
            text = f"{zone[1]}Z"
        value = iso(text) if "T" in text else sql(text)
        if zone and (zone[3], zone[4]) != ("00", "00"):
            if not isinstance(value, int):
                raise ValueError(f"{describe(text)}: nanoseconds are only possible in UTC")
            minutes = int(zone[3]) * 60 + int(zone[4])
            value += (-1 if zone[2] == "+" else 1) * minutes * 60 * _MICROSECONDS_A_SECOND
            if not _MICROS_LOW <= value <= _MICROS_HIGH:
                raise ValueError(f"{describe(text)} in UTC is outside the years 1 to 9999")
        return value

    return convert


def _number_converter(sql_type: SqlType, encoding: Encoding) -> Callable[[int], Value]:
    kind, form = sql_type.kind, encoding.form
    unit = UNITS_NS.get(form)

    def to_date(number: int) -> Value:
        if form not in ("days", "iso"):
            raise ValueError(f"{number} is an instant in {form}, not a date; declare TIMESTAMP")
        if not _DAYS_LOW <= number <= _DAYS_HIGH:
            raise ValueError(f"{number} days since 1970-01-01 is outside the years 1 to 9999")
        return number

    def to_time(number: int) -> Value:
        if unit is None:
            raise ValueError(
                f"{number} may be milliseconds or microseconds (time.precision.mode: adaptive); "
                "let the connector write schemas, or adaptive_time_microseconds"
            )
        if not 0 <= number * unit <= _NANOSECONDS_A_DAY:
            raise ValueError(f"{number} {form} is not a time of day")
        seconds, nanos = divmod(number * unit % _NANOSECONDS_A_DAY, 1_000_000_000)
        minutes, second = divmod(seconds, 60)
        text = f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"
        return f"{text}.{nanos:09d}".rstrip("0") if nanos else text

    def to_instant(number: int) -> Value:
        if unit is None:
            raise ValueError(f"{number} is not a valid {sql_type}; the source writes text here")
        micros, nanos = divmod(number * unit, 1_000)
        if not _MICROS_LOW <= micros <= _MICROS_HIGH:
            raise ValueError(f"{number} {form} since 1970 is outside the years 1 to 9999")
        if sql_type.textual_time:
            moment = _EPOCH + micros // _MICROSECONDS_A_SECOND * timedelta(seconds=1)
            fraction = micros % _MICROSECONDS_A_SECOND * 1_000 + nanos
            return f"{moment.isoformat(sep=' ', timespec='seconds')}.{fraction:09d}"
        if nanos:
            raise ValueError(f"{number} ns has digits beyond microseconds; declare {kind}(9)")
        return micros

    return {Kind.DATE: to_date, Kind.TIME: to_time}.get(kind, to_instant)
