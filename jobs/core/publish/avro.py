"""The Avro schemas of published records, and the bytes that a whole column shares.

    key     Key     the group columns                                  <topic>-key
    value   Change  op, row, epoch, seq, time       (avro)             <topic>-value
            Envelope before, after, source, op, ts_ms  (debezium-avro)
            Row     the row's columns               (upsert-avro)

Each column may be NULL and has NULL as its default. So a column that comes or goes is a compatible
change in a registry, for old and new readers. Types have Avro's logical types; a time that no
logical type of all readers holds (TIME, and times with nanoseconds) is a string, as in JSON.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable
from typing import Any

from schemas.types.sql_types import Kind, SqlType

_HEADER = struct.Struct(">BI")
_MILLISECONDS_PRECISION_MAX = 3
_PLAIN: dict[Kind, str] = {
    Kind.BOOLEAN: "boolean",
    Kind.TINYINT: "int",
    Kind.SMALLINT: "int",
    Kind.INT: "int",
    Kind.BIGINT: "long",
    Kind.FLOAT: "float",
    Kind.DOUBLE: "double",
    Kind.STRING: "string",
    Kind.TIME: "string",
    Kind.BINARY: "bytes",
}
NamedTypes = Iterable[tuple[str, SqlType]]


def schemas_of(format: str, topic: str, group: NamedTypes, output: NamedTypes) -> dict[str, str]:
    """Return the schemas of a topic by their subjects: of the key, then of the value."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", topic)
    namespace = f"_{name}" if name[:1].isdigit() else name
    key = _record("Key", _columns(group), namespace)
    row = _record("Row", _columns(output))
    if format == "upsert-avro":
        value = {**row, "namespace": namespace}
    elif format == "debezium-avro":
        source = _record(
            "Source",
            [*_fields("string", "connector", "name", "db", "table"), *_fields("long", *_POSITION)],
        )
        images = [_field("before", ["null", row], None), _field("after", ["null", "Row"], None)]
        members = [*images, _field("source", source)]
        members += [_field("op", "string"), _field("ts_ms", "long")]
        value = _record("Envelope", members, namespace)
    else:
        members = [_field("op", "string"), _field("row", row), *_fields("long", "epoch", "seq")]
        value = _record("Change", [*members, _field("time", ["null", "long"], None)], namespace)
    named = {"key": key, "value": value}
    return {f"{topic}-{part}": json.dumps(each) for part, each in named.items()}


def is_milliseconds(sql_type: SqlType) -> bool:
    """Return whether a time is written in milliseconds, which more readers know."""
    return (sql_type.precision or 0) <= _MILLISECONDS_PRECISION_MAX


def encode_long(number: int) -> bytes:
    """Return a number in Avro's variable length."""
    raw, octets = (number << 1) ^ (number >> 63), bytearray()
    while raw > 0x7F:
        octets.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*octets, raw])


def encode_text(text: str) -> bytes:
    content = text.encode()
    return encode_long(len(content)) + content


def encode_header(schema: int) -> bytes:
    """Return what is before each value in Confluent's wire format."""
    return _HEADER.pack(0, schema)


_POSITION = ("ts_ms", "epoch", "seq")


def _columns(columns: NamedTypes) -> list[Any]:
    return [_field(name, ["null", _type(kind)], None) for name, kind in columns]


def _type(sql_type: SqlType) -> Any:
    kind = sql_type.kind
    if kind is Kind.ARRAY:
        return {"type": "array", "items": ["null", _type(sql_type.items[0])]}
    if kind is Kind.DECIMAL:
        digits = {"precision": sql_type.precision, "scale": sql_type.scale or 0}
        return {"type": "bytes", "logicalType": "decimal", **digits}
    if kind is Kind.DATE:
        return {"type": "int", "logicalType": "date"}
    if sql_type.textual_time:
        return "string"
    if kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ):
        zone = "local-" if kind is Kind.TIMESTAMP else ""
        unit = "millis" if is_milliseconds(sql_type) else "micros"
        return {"type": "long", "logicalType": f"{zone}timestamp-{unit}"}
    return _PLAIN[kind]


def _record(name: str, fields: list[Any], namespace: str | None = None) -> dict[str, Any]:
    space = {} if namespace is None else {"namespace": namespace}
    return {"type": "record", "name": name, **space, "fields": fields}


def _field(name: str, kind: Any, *default: None) -> dict[str, Any]:
    return {"name": name, "type": kind, **({"default": None} if default else {})}


def _fields(kind: str, *names: str) -> list[Any]:
    return [_field(name, kind) for name in names]
