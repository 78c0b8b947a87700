"""Read the bytes of Protobuf messages as JSON has them, by a schema.

    tag, value ──► fields by number ──► the last value of each, or all of a repeated one ──► JSON

The JSON is that of Protobuf itself: enums by name, bytes in base64, google.protobuf.Timestamp as
text, a wrapper as its value. So the converters of debezium-json read the columns. NULL is a field
without a value that has presence; any other absent field is 0, false or empty.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from jobs.core.formats.protobuf.schema import Field, Message, Schema
from jobs.core.formats.registered import SchemaError
from jobs.core.values.float_values import shortest_float
from jobs.core.values.json_text import JsonNumber
from schemas import limits

_VARINT, _EIGHT, _SIZED, _FOUR = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10
_NANOS = 1_000_000_000
FIXED = {
    "double": "<d",
    "float": "<f",
    "fixed32": "<I",
    "fixed64": "<Q",
    "sfixed32": "<i",
    "sfixed64": "<q",
}
_WIRE = {"string": _SIZED, "bytes": _SIZED} | {
    kind: _EIGHT if struct.calcsize(form) == 8 else _FOUR for kind, form in FIXED.items()
}
_WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ["Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes"]
)
Raw = int | bytes
Names = Mapping[str, Any] | None


def read_varint(value: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, without a sign, and where it ends."""
    raw = shift = 0
    for end in range(at, at + _VARINT_BYTES_MAX):
        byte = value[end]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw & (1 << 64) - 1, end + 1
        shift += 7
    raise SchemaError(f"the number at byte {at} has more than 64 bits")


def read_fields(value: bytes, at: int) -> dict[int, list[tuple[int, Raw]]]:
    """Return the values of each field in their order, with their wire types."""
    found: dict[int, list[tuple[int, Raw]]] = {}
    while at < len(value):
        tag, at = read_varint(value, at)
        wire, raw = tag & 7, b""
        if wire == _VARINT:
            number, at = read_varint(value, at)
            found.setdefault(tag >> 3, []).append((wire, number))
            continue
        if wire == _SIZED:
            size, at = read_varint(value, at)
        elif wire in (_EIGHT, _FOUR):
            size = 8 if wire == _EIGHT else 4
        else:
            raise SchemaError(f"the message has a group or no field at byte {at}")
        if size > len(value) - at:
            raise SchemaError(f"the message ends within a value of {size} bytes at byte {at}")
        raw = value[at : at + size]
        at += size
        found.setdefault(tag >> 3, []).append((wire, raw))
    return found


def read_message(
    schema: Schema,
    message: Message,
    value: bytes,
    at: int = 0,
    depth: int = 1,
    only: Names = None,
    left: list[int] | None = None,
) -> Any:
    """Return a message as JSON; raise SchemaError or IndexError for bytes that are none.

    `only` has the names of the fields that are read, with those of messages in them; None: all.
    `left` counts down the values that may be: a message of 0 bytes has all its fields."""
    if depth > limits.MESSAGE_DEPTH_MAX:
        raise SchemaError(f"the message is nested deeper than {limits.MESSAGE_DEPTH_MAX} levels")
    found = read_fields(value, at)
    left = [limits.MESSAGE_VALUES_MAX] if left is None else left
    if only is None:
        _count(left, len(message.fields))
    members = {
        each.name: _read_field(
            schema, each, found.get(each.number, []), depth, (only or {}).get(each.name), left
        )
        for each in message.fields
        if only is None or each.name in only
    }
    to_json = _KNOWN.get(message.name) if depth > 1 and only is None else None  # no row, no image
    return members if to_json is None else to_json(members)


def _count(left: list[int], values: int) -> None:
    left[0] -= values
    if left[0] < 0:
        raise SchemaError(f"the message has more than {limits.MESSAGE_VALUES_MAX:,} values")


def _read_field(
    schema: Schema,
    field: Field,
    found: list[tuple[int, Raw]],
    depth: int,
    only: Names,
    left: list[int],
) -> object:
    inner = schema.messages.get(field.kind)
    wire = wire_of(schema, field.kind)
    values: list[Raw] = []
    for own, raw in found:
        if own == wire:
            values.append(raw)
        elif own == _SIZED and isinstance(raw, bytes) and wire != _SIZED and field.repeated:
            values += _unpack(raw, wire)
    _count(left, len(values) if field.repeated else 0)
    if inner is not None:
        octets = [raw for raw in values if isinstance(raw, bytes)]
        if not field.repeated:  # several values are one message, merged
            merged = b"".join(octets)
            return read_message(schema, inner, merged, 0, depth + 1, only, left) if octets else None
        items = [read_message(schema, inner, raw, 0, depth + 1, None, left) for raw in octets]
        return {_key(each["key"]): each["value"] for each in items} if field.is_map else items
    if field.repeated:
        return [to_json(schema, field.kind, raw) for raw in values]
    if values:
        return to_json(schema, field.kind, values[-1])
    return absent_value(schema, field)


def absent_value(schema: Schema, field: Field) -> object:
    """Return the value of a field without one: NULL, or 0, false or empty."""
    if field.has_presence:
        return None
    wire = wire_of(schema, field.kind)
    return to_json(schema, field.kind, 0 if wire == _VARINT else bytes(_SIZES[wire]))


def wire_of(schema: Schema, kind: str) -> int:
    """Return the wire type of a kind."""
    return _SIZED if kind in schema.messages else _WIRE.get(kind, _VARINT)


_SIZES = {_SIZED: 0, _FOUR: 4, _EIGHT: 8}


def _unpack(raw: bytes, wire: int) -> list[Raw]:
    """Return the packed values of a repeated field."""
    if wire != _VARINT:
        size = _SIZES[wire]
        if len(raw) % size:
            raise SchemaError(f"a packed field has {len(raw)} bytes, in values of {size}")
        return [raw[at : at + size] for at in range(0, len(raw), size)]
    at, numbers = 0, []
    while at < len(raw):
        number, at = read_varint(raw, at)
        numbers.append(number)
    return list(numbers)


def to_json(schema: Schema, kind: str, raw: Raw) -> object:
    if isinstance(raw, bytes):
        if kind == "string":
            return raw.decode("utf-8", "surrogateescape")  # a column's converter refuses it
        if kind == "bytes":
            return base64.b64encode(raw).decode()
        number = struct.unpack(FIXED[kind], raw)[0]
        if not isinstance(number, float):
            return JsonNumber(number)
        if not math.isfinite(number):
            return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
        return JsonNumber(repr(shortest_float(number) if kind == "float" else number))
    if kind == "bool":
        return raw != 0
    if kind in ("sint32", "sint64"):
        raw &= (1 << int(kind[-2:])) - 1
        return JsonNumber(raw >> 1 ^ -(raw & 1))
    if kind in ("uint32", "uint64"):
        return JsonNumber(raw & (1 << int(kind[-2:])) - 1)
    bits = 64 if kind == "int64" else 32  # an enum is an int32
    raw &= (1 << bits) - 1
    number = raw - (1 << bits) if raw >> bits - 1 else raw
    return schema.enums.get(kind, {}).get(number) or JsonNumber(number)


def _key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


# --- types of other libraries ---------------------------------------------------------------


def _timestamp(members: Mapping[str, Any]) -> str:
    seconds, nanos = (int(members[name]) for name in ("seconds", "nanos"))
    try:
        if not 0 <= nanos < _NANOS:
            raise ValueError(nanos)
        moment = datetime(1970, 1, 1) + timedelta(seconds=seconds)
    except (ValueError, OverflowError):
        reason = f"a Timestamp of {seconds} s and {nanos} ns is not within the years 1 to 9999"
        raise SchemaError(reason) from None
    return f"{moment.isoformat(timespec='seconds')}{_fraction(nanos)}Z"


def _date(members: Mapping[str, Any]) -> str:
    year, month, day = (int(members[name]) for name in ("year", "month", "day"))
    return f"{year:04d}-{month:02d}-{day:02d}"


def _time(members: Mapping[str, Any]) -> str:
    hours, minutes, seconds, nanos = (
        int(members[name]) for name in ("hours", "minutes", "seconds", "nanos")
    )
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}{_fraction(nanos)}"


def _fraction(nanos: int) -> str:
    return f".{nanos:09d}".rstrip("0") if nanos else ""


def _decimal(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return a decimal as Debezium's VariableScaleDecimal."""
    return {"scale": members["scale"], "value": members["value"]}


def _value(members: Mapping[str, Any]) -> Any:
    return members["value"]


_KNOWN: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "google.protobuf.Timestamp": _timestamp,
    "google.type.Date": _date,
    "google.type.TimeOfDay": _time,
    "confluent.type.Decimal": _decimal,
    **dict.fromkeys(_WRAPPERS, _value),
}
TIMES = frozenset(("google.protobuf.Timestamp", "google.type.Date", "google.type.TimeOfDay"))
