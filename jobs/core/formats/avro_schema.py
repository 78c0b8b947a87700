"""Parse Avro schemas, and read their values from bytes as JSON has them.

    schemas of a registry ── parse_schema ──► Node ── read_value ──► what Debezium's JSON has
     (references first)                       tree                   (bytes as base64, numbers
                                                                      as their text)

The same converters then read both, so a column is the same in Avro and in JSON. `read_value` is
exact and slow: generated code (`jobs.core.formats.avro`) reads usual messages.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from jobs.core.formats.registered import SchemaError
from jobs.core.values.float_values import shortest_float
from jobs.core.values.json_text import JsonNumber, describe
from schemas import limits

WHOLE = ("int", "long")
_PRIMITIVES = ("null", "boolean", *WHOLE, "float", "double", "bytes", "string")
_LONG_BYTES_MAX = 10
# Logical types in the words of Kafka Connect, which are in a schema that Connect has written.
_MEANINGS = {
    "decimal": "org.apache.kafka.connect.data.Decimal",
    "date": "org.apache.kafka.connect.data.Date",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "timestamp-nanos": "io.debezium.time.NanoTimestamp",
    "local-timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "local-timestamp-micros": "io.debezium.time.MicroTimestamp",
    "local-timestamp-nanos": "io.debezium.time.NanoTimestamp",
}


class Node(NamedTuple):
    """A type of a schema; types by name are resolved."""

    kind: str
    parts: tuple[Node, ...] = ()  # of record fields, branches of a union, items
    labels: tuple[str, ...] = ()  # names of record fields, symbols of an enum
    size: int = 0  # of a fixed
    meaning: str = ""  # Connect's name of the type
    scale: int = 0  # of a decimal
    nodes: int = 1  # with those below it
    depth: int = 1

    @property
    def connect_field(self) -> dict[str, object]:
        """The type as a field of Connect's JSON schema."""
        return {"name": self.meaning, "parameters": {"scale": str(self.scale)}}

    @property
    def is_empty(self) -> bool:
        """Whether no value takes a byte, so that a few bytes could claim billions of them."""
        none = self.kind == "record" and all(part.is_empty for part in self.parts)
        return self.kind == "null" or none or (self.kind == "fixed" and not self.size)

    def of_kind(self, *kinds: str) -> Node | None:
        """Return this type, or the branch of a union, that is of one of these kinds."""
        parts = self.parts if self.kind == "union" else (self,)
        return next((part for part in parts if part.kind in kinds), None)

    def field(self, name: str) -> Node | None:
        """Return the type of a record's field."""
        at = self.labels.index(name) if name in self.labels else None
        return None if at is None else self.parts[at]


def parse_schema(texts: Sequence[str]) -> Node:
    """Return the type of the last schema, which may name types of those before it.

    Raise SchemaError for an invalid, recursive or very large schema."""
    named: dict[str, Node | None] = {}
    node = Node("null")
    try:
        for text in texts:
            node = _parse(json.loads(text), "", named)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"the schema is not a valid Avro schema: {error!r}") from None
    return node


def _parse(schema: Any, namespace: str, named: dict[str, Node | None]) -> Node:
    if isinstance(schema, list):
        return _node("union", tuple(_parse(each, namespace, named) for each in schema))
    if isinstance(schema, str):
        return Node(schema) if schema in _PRIMITIVES else _resolve(schema, namespace, named)
    kind = schema["type"]
    if not isinstance(kind, str):
        return _parse(kind, namespace, named)
    name = schema.get("connect.name") or _MEANINGS.get(schema.get("logicalType"), "")
    parameters = schema.get("connect.parameters", {})
    scale = int(schema.get("scale", parameters.get("scale", 0)))
    if kind in _PRIMITIVES:
        return Node(kind, meaning=name, scale=scale)
    if kind in ("array", "map"):
        items = _parse(schema["items" if kind == "array" else "values"], namespace, named)
        if kind == "array" and items.is_empty:
            raise SchemaError("the schema has an array whose elements take no bytes")
        return _node(kind, (items,))
    if kind not in ("record", "error", "enum", "fixed"):
        return _resolve(kind, namespace, named)
    full = schema["name"]
    if "." not in full:
        full = ".".join(filter(None, (schema.get("namespace", namespace), full)))
    named[full] = None
    if kind == "enum":
        node = Node(kind, labels=tuple(schema["symbols"]), meaning=name)
    elif kind == "fixed":
        node = Node(kind, size=max(0, int(schema["size"])), meaning=name, scale=scale)
    else:
        inner, fields = full.rpartition(".")[0], schema["fields"]
        parts = tuple(_parse(field["type"], inner, named) for field in fields)
        labels = tuple(field["name"] for field in fields)
        node = _node("record", parts, labels)._replace(meaning=name)
    named[full] = node
    return node


def _resolve(name: str, namespace: str, named: dict[str, Node | None]) -> Node:
    full = f"{namespace}.{name}" if "." not in name and namespace else name
    full = full if full in named else name
    if full not in named:
        raise SchemaError(f"the schema names {describe(name)}, which it does not define")
    node = named[full]
    if node is None:
        raise SchemaError(f"the schema is recursive: {describe(full)} contains itself")
    return node


def _node(kind: str, parts: tuple[Node, ...], labels: tuple[str, ...] = ()) -> Node:
    nodes = 1 + sum(part.nodes for part in parts)
    depth = 1 + max((part.depth for part in parts), default=0)
    if nodes > limits.SCHEMA_TYPES_MAX or depth > limits.MESSAGE_DEPTH_MAX:
        raise SchemaError(
            f"the schema has more than {limits.SCHEMA_TYPES_MAX} types, or more than "
            f"{limits.MESSAGE_DEPTH_MAX} levels"
        )
    return Node(kind, parts, labels, nodes=nodes, depth=depth)


# --- values ---------------------------------------------------------------------------------


def read_long(value: bytes, at: int) -> tuple[int, int]:
    """Return a number of Avro's variable length, and where it ends."""
    raw = shift = 0
    for end in range(at, at + _LONG_BYTES_MAX):
        byte = value[end]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >= 1 << 64:
                break
            return (raw >> 1) ^ -(raw & 1), end + 1
        shift += 7
    raise SchemaError(f"the number at byte {at} has more than 64 bits")


def read_size(value: bytes, at: int) -> tuple[int, int]:
    """Return the length of bytes that follow, and where they start."""
    size, at = read_long(value, at)
    if not 0 <= size <= len(value) - at:
        raise SchemaError(f"the message ends within a value of {size} bytes at byte {at}")
    return size, at


def read_value(node: Node, value: bytes, at: int) -> tuple[object, int]:
    """Return the value at a byte as JSON has it, and where it ends."""
    kind = node.kind
    if kind == "record":
        members: dict[str, object] = {}
        for label, part in zip(node.labels, node.parts, strict=True):
            members[label], at = read_value(part, value, at)
        return members, at
    if kind in ("union", "enum"):
        index, at = read_long(value, at)
        choices: Sequence[Any] = node.parts if kind == "union" else node.labels
        if not 0 <= index < len(choices):
            raise SchemaError(f"{index} is not among the {len(choices)} of the {kind}")
        return read_value(choices[index], value, at) if kind == "union" else (choices[index], at)
    if kind in ("array", "map"):
        return _read_blocks(node, value, at)
    if kind in WHOLE:
        raw, at = read_long(value, at)
        return to_json(node, raw), at
    size = {"null": 0, "boolean": 1, "float": 4, "double": 8, "fixed": node.size}.get(kind)
    if size is None:
        size, at = read_size(value, at)
    end = at + size
    if end > len(value):
        raise SchemaError("the message ends within a value")
    content = value[at:end]
    if kind in ("float", "double"):
        return to_json(node, struct.unpack("<f" if kind == "float" else "<d", content)[0]), end
    if kind == "string":
        return content.decode("utf-8", "surrogateescape"), end  # a column's converter refuses it
    if kind == "boolean":
        return content != b"\0", end
    return (None if kind == "null" else to_json(node, content)), end


def _read_blocks(node: Node, value: bytes, at: int) -> tuple[object, int]:
    items: list[object] = []
    members: dict[str, object] = {}
    while True:
        count, at = read_long(value, at)
        if not count:
            return (items if node.kind == "array" else members), at
        if count < 0:  # then the size of the block follows
            count, at = -count, read_long(value, at)[1]
        for _ in range(count):
            if node.kind == "array":
                item, at = read_value(node.parts[0], value, at)
                items.append(item)
            else:
                size, start = read_size(value, at)
                key = value[start : start + size].decode("utf-8", "replace")
                members[key], at = read_value(node.parts[0], value, start + size)


def to_json(node: Node, raw: object) -> object:
    """Return a scalar as Debezium's JSON has it."""
    if isinstance(raw, bytes):
        return base64.b64encode(raw).decode()
    if isinstance(raw, float):
        if not math.isfinite(raw):
            return "NaN" if math.isnan(raw) else "Infinity" if raw > 0 else "-Infinity"
        return JsonNumber(repr(shortest_float(raw) if node.kind == "float" else raw))
    return JsonNumber(raw) if isinstance(raw, int) and not isinstance(raw, bool) else raw
