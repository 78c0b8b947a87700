"""PostgreSQL's types: their OIDs, and their values as text and as bytes.

    parameter of a client ──► read_parameter ──► DuckDB
    column of an answer   ──► PgColumn       ──► the fields of its rows

A list of plain values is an array. What else is nested is json, and what has no type of its own
here (UUID, ENUM) is text.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import duckdb
import numpy as np
import pyarrow as pa

from jobs.querying.json_answers import render_column
from jobs.querying.statement import StatementRefused

_DAY_ZERO = dt.date(2000, 1, 1)
_ZERO = dt.datetime(2000, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_INT = struct.Struct(">i")
_NUMERIC_HEAD = struct.Struct(">HhHH")
_NAN = 0xC000
_ITEM = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^",{}\\]+))\s*(?:,|$)')
_PLAIN_ITEM = re.compile(r"[^\s\"\\{},]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class PgType:
    oid: int
    array: int  # the OID of its arrays
    name: str  # as DuckDB and PostgreSQL both know it
    size: int  # in bytes; -1 if it varies
    write: Callable[[Any], str]
    pack: Callable[[Any], bytes]
    unpack: Callable[[bytes], Any]


def _write_float(value: float, whole_digits: int = 15) -> str:
    if not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    text = repr(value).removesuffix(".0")
    if abs(value) < 10**whole_digits or "e" in text:
        return text
    digits = text.replace(".", "").lstrip("-")
    rest = digits[1:].rstrip("0")
    exponent = len(text.lstrip("-").partition(".")[0]) - 1
    return f"{'-' if value < 0 else ''}{digits[0]}{'.' if rest else ''}{rest}e+{exponent:02}"


def _write_float4(value: float) -> str:
    # The shortest text that is this number.
    return _write_float(float(str(np.float32(value))), whole_digits=6)


def _trim(time: str) -> str:
    """Return a time without the zeros at the end of its fraction."""
    return time.rstrip("0").rstrip(".") if "." in time else time


def _write_zoned(value: dt.datetime) -> str:
    return _write_moment(value.replace(tzinfo=None)) + "+00"  # a worker's database has UTC


def _write_interval(value: pa.MonthDayNano) -> str:
    """Return `1 year 2 mons -3 days +04:05:06.7`: what follows a negative part has its sign."""
    years = math.trunc(value.months / 12)
    pieces: list[str] = []
    sign = ""
    for count, unit in ((years, "year"), (value.months - 12 * years, "mon"), (value.days, "day")):
        if count:
            pieces.append(f"{sign if count > 0 else ''}{count} {unit}{'' if count == 1 else 's'}")
            sign = "+" if count < 0 else ""
    seconds, rest = divmod(abs(value.nanoseconds) // 1_000, 1_000_000)
    if seconds or rest or not pieces:
        sign = "-" if value.nanoseconds < 0 else sign
        time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:06}"
        pieces.append(sign + _trim(time))
    return " ".join(pieces)


def _pack_numeric(value: Decimal) -> bytes:
    if not value.is_finite():
        return _NUMERIC_HEAD.pack(0, 0, _NAN, 0)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(-exponent, 0)
    number = int("".join(map(str, digits))) * 10 ** (max(exponent, 0) + -scale % 4)
    groups: list[int] = []
    while number:
        number, group = divmod(number, 10_000)
        groups.append(group)
    weight = len(groups) - (scale + 3) // 4 - 1
    head = _NUMERIC_HEAD.pack(len(groups), weight, 0x4000 if sign else 0, scale)
    return head + struct.pack(f">{len(groups)}H", *reversed(groups))


def _unpack_numeric(data: bytes) -> Decimal:
    count, weight, sign, scale = _NUMERIC_HEAD.unpack_from(data)
    if sign >= _NAN:
        return Decimal("NaN")
    number = 0
    for group in struct.unpack_from(f">{count}H", data, _NUMERIC_HEAD.size):
        number = number * 10_000 + group
    fraction = 4 * (count - weight - 1)  # digits after the point, which may be more than `scale`
    number = number * 10**-fraction if fraction < 0 else number
    kept = max(fraction, 0) - scale
    number = number // 10**kept if kept > 0 else number * 10**-kept
    return Decimal((sign == 0x4000, tuple(map(int, str(number))), -scale))


def _unpack_interval(data: bytes) -> dt.timedelta:
    micros, days, months = struct.unpack(">qii", data)
    return dt.timedelta(days + 30 * months, microseconds=micros)


def _pack_interval(value: pa.MonthDayNano) -> bytes:
    return struct.pack(">qii", value.nanoseconds // 1_000, value.days, value.months)


def _pack_date(value: dt.date) -> bytes:
    return _INT.pack((value - _DAY_ZERO).days)


def _unpack_date(data: bytes) -> dt.date:
    return _DAY_ZERO + dt.timedelta(_INT.unpack(data)[0])


def _unpack_time(data: bytes) -> dt.time:
    return _unpack_moment(data).time()


def _write_moment(value: dt.datetime) -> str:
    return _trim(value.isoformat(" "))


def _write_time(value: dt.time) -> str:
    return _trim(value.isoformat())


def _pack_time(value: dt.time) -> bytes:
    return struct.pack(">q", (dt.datetime.combine(_DAY_ZERO, value) - _ZERO) // _MICROSECOND)


def _pack_moment(value: dt.datetime) -> bytes:
    return struct.pack(">q", (value.replace(tzinfo=None) - _ZERO) // _MICROSECOND)


def _unpack_moment(data: bytes) -> dt.datetime:
    (micros,) = struct.unpack(">q", data)
    return _ZERO + dt.timedelta(microseconds=micros)


def _unpack_zoned(data: bytes) -> dt.datetime:
    return _unpack_moment(data).replace(tzinfo=dt.UTC)


def _make_fixed(oid: int, array: int, name: str, code: str, write: Callable[[Any], str]) -> PgType:
    packing = struct.Struct(code)
    return PgType(
        oid, array, name, packing.size, write, packing.pack, lambda data: packing.unpack(data)[0]
    )


def _make_textual(oid: int, array: int, name: str) -> PgType:
    return PgType(oid, array, name, -1, str, lambda value: str(value).encode(), bytes.decode)


_TYPES = [
    _make_fixed(16, 1000, "bool", "?", lambda value: "t" if value else "f"),
    _make_fixed(21, 1005, "int2", ">h", str),
    _make_fixed(23, 1007, "int4", ">i", str),
    _make_fixed(20, 1016, "int8", ">q", str),
    _make_fixed(700, 1021, "float4", ">f", _write_float4),
    _make_fixed(701, 1022, "float8", ">d", _write_float),
    PgType(1700, 1231, "numeric", -1, lambda value: f"{value:f}", _pack_numeric, _unpack_numeric),
    _make_textual(25, 1009, "text"),
    _make_textual(114, 199, "json"),
    PgType(17, 1001, "bytea", -1, lambda value: "\\x" + value.hex(), bytes, bytes),
    PgType(1082, 1182, "date", 4, dt.date.isoformat, _pack_date, _unpack_date),
    PgType(1083, 1183, "time", 8, _write_time, _pack_time, _unpack_time),
    PgType(1114, 1115, "timestamp", 8, _write_moment, _pack_moment, _unpack_moment),
    PgType(1184, 1185, "timestamptz", 8, _write_zoned, _pack_moment, _unpack_zoned),
    PgType(1186, 1187, "interval", 16, _write_interval, _pack_interval, _unpack_interval),
    # What a client may name for a parameter, but no column is here.
    _make_textual(705, 0, "unknown"),
    _make_textual(1043, 1015, "varchar"),
    _make_textual(1042, 1014, "bpchar"),
    _make_textual(19, 1003, "name"),
    _make_fixed(26, 1028, "oid", ">I", str),
    PgType(2950, 2951, "uuid", 16, str, bytes, lambda data: str(UUID(bytes=data))),
    PgType(3802, 3807, "jsonb", -1, str, bytes, lambda data: data[1:].decode()),
]
_BY_NAME = {each.name: each for each in _TYPES}
_BY_OID = {each.oid: each for each in _TYPES}
_BY_ARRAY = {each.array: each for each in _TYPES}
_ALIASES = {
    "integer": "int4",
    "int": "int4",
    "bigint": "int8",
    "smallint": "int2",
    "boolean": "bool",
    "real": "float4",
    "double": "float8",
    "decimal": "numeric",
    "blob": "bytea",
}
_TEXT, _JSON = _BY_NAME["text"], _BY_NAME["json"]
_NUMERIC, _BYTEA = _BY_NAME["numeric"], _BY_NAME["bytea"]
_OF_ARROW = {
    pa.bool_(): "bool",
    pa.int8(): "int2",
    pa.uint8(): "int2",
    pa.int16(): "int2",
    pa.uint16(): "int4",
    pa.int32(): "int4",
    pa.uint32(): "oid",  # the catalog has it; jobs have no such type
    pa.int64(): "int8",
    pa.uint64(): "numeric",
    pa.float32(): "float4",
    pa.float64(): "float8",
    pa.binary(): "bytea",
    pa.date32(): "date",
    pa.time64("us"): "time",
    pa.month_day_nano_interval(): "interval",
}
TEXT_OID = _TEXT.oid
TEXT_ARRAY_OID = _TEXT.array


def _find_type(arrow: pa.DataType) -> PgType:
    """Return the type of a column that is no list."""
    if (name := _OF_ARROW.get(arrow)) is not None:
        return _BY_NAME[name]
    if pa.types.is_decimal(arrow):
        return _NUMERIC
    if pa.types.is_timestamp(arrow):
        return _BY_NAME["timestamp" if arrow.tz is None else "timestamptz"]
    return _JSON if pa.types.is_nested(arrow) else _TEXT


class PgColumn:
    """A column of an answer as PostgreSQL's clients know it."""

    def __init__(self, arrow: pa.DataType) -> None:
        self._arrow = arrow
        lists = pa.types.is_list(arrow) or pa.types.is_fixed_size_list(arrow)
        self._is_array = lists and not pa.types.is_nested(arrow.value_type)
        self._type = _find_type(arrow.value_type if self._is_array else arrow)
        self.oid = self._type.array if self._is_array else self._type.oid
        self.size = -1 if self._is_array else self._type.size
        self.modifier = -1
        if pa.types.is_decimal(arrow):
            self.modifier = (arrow.precision << 16 | arrow.scale) + 4

    def render(self, column: pa.Array, binary: bool) -> list[bytes | None]:
        """Return each value as a field of a row; raise ValueError or OverflowError."""
        write: Callable[[Any], bytes] = self._pack if binary else self._write
        return [None if value is None else write(value) for value in self._read(column)]

    def _read(self, column: pa.Array) -> list[Any]:
        if self._type is _JSON:
            values = render_column(column)
            return [None if value is None else json.dumps(value) for value in values]
        if pa.types.is_timestamp(self._arrow) and self._arrow.unit != "us":
            column = column.cast(pa.timestamp("us", self._arrow.tz), safe=False)
        values = column.to_pylist()
        return list(map(_to_decimal, values)) if self._type is _NUMERIC else values

    def _write(self, value: Any) -> bytes:
        if not self._is_array:
            return self._type.write(value).encode()
        items = ("NULL" if item is None else _quote_item(self._type.write(item)) for item in value)
        return f"{{{','.join(items)}}}".encode()

    def _pack(self, value: Any) -> bytes:
        if not self._is_array:
            return self._type.pack(value)
        head = struct.pack(">iii", bool(value), None in value, self._type.oid)
        if value:
            head += struct.pack(">ii", len(value), 1)
        return head + b"".join(frame_value(item, self._type.pack) for item in value)


def frame_value(value: Any, pack: Callable[[Any], bytes] = bytes) -> bytes:
    """Return a value with its length before it; NULL has the length -1."""
    if value is None:
        return _INT.pack(-1)
    packed = pack(value)
    return _INT.pack(len(packed)) + packed


def _to_decimal(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_to_decimal, value))
    return Decimal(value) if isinstance(value, int) else value


def _quote_item(text: str) -> str:
    if _PLAIN_ITEM.fullmatch(text) and text.upper() != "NULL":
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def read_parameter(oid: int, value: bytes | None, binary: bool) -> Any:
    """Return a parameter as DuckDB takes it; raise StatementRefused if it cannot be read."""
    of_array = _BY_ARRAY.get(oid) if oid else None
    known = _BY_OID.get(oid) or of_array
    try:
        if value is None or not oid:
            return None if value is None else value.decode()
        if known is None:
            raise ValueError(f"its type {oid} is not known; send it as text")
        if binary:
            return _unpack_array(value) if of_array else known.unpack(value)
        if of_array:
            return [_read_text(known, item) for item in _split_array(value.decode())]
        return _read_text(known, value.decode())
    except (ValueError, OverflowError, struct.error, duckdb.Error) as error:
        reason = f"a parameter cannot be read as {known.name if known else oid}: {error}"
        raise StatementRefused(reason, code="22P02") from None


def name_parameter_type(oid: int) -> str | None:
    """Return the name of a parameter's type in DuckDB; None if it is any text."""
    of_array = _BY_ARRAY.get(oid) if oid else None
    known = _BY_OID.get(oid) or of_array
    if known is None or known.name == "unknown":
        return None
    name = {"oid": "uint32", "jsonb": "json", "name": "text"}.get(known.name, known.name)
    return f"{name}[]" if of_array else name


def find_type_oid(name: str) -> int:
    """Return the OID of a type as a cast names it, with [] for its arrays; 0 if it is not known."""
    plain = name.removesuffix("[]")
    known = _BY_NAME.get(_ALIASES.get(plain, plain))
    if known is None:
        return 0
    return known.array if name.endswith("[]") else known.oid


def _read_text(known: PgType, text: str | None) -> Any:
    if text is None or known.unpack is bytes.decode:
        return text
    if known is _BYTEA:
        return bytes.fromhex(text.removeprefix("\\x"))
    if known is _NUMERIC:
        return Decimal(text)
    return duckdb.Value(text, duckdb.sqltype(name_parameter_type(known.oid) or "text"))


def _split_array(text: str) -> list[str | None]:
    """Return the items of an array of one dimension, `{1,NULL,"a b"}`."""
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError("an array is written {1,2}")
    items: list[str | None] = []
    at, inside = 0, text[1:-1]
    while at < len(inside):
        found = _ITEM.match(inside, at)
        if found is None:
            raise ValueError('an array has one dimension, and items like a or "a b"')
        quoted, plain = found.groups()
        if plain is None:
            items.append(re.sub(r"\\(.)", r"\1", quoted))
        else:
            items.append(None if plain.strip().upper() == "NULL" else plain.strip())
        at = found.end()
    return items


def _unpack_array(data: bytes) -> list[Any]:
    dimensions, _, oid = struct.unpack_from(">iiI", data)
    known = _BY_OID.get(oid)
    if dimensions not in (0, 1) or known is None:
        raise ValueError("an array has one dimension, and items of a known type")
    items: list[Any] = []
    at = 20
    for _ in range(struct.unpack_from(">i", data, 12)[0] if dimensions else 0):
        (size,) = _INT.unpack_from(data, at)
        at += 4
        items.append(None if size < 0 else known.unpack(data[at : at + size]))
        at += max(size, 0)
    return items
