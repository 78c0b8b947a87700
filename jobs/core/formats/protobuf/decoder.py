"""Decode Protobuf messages: debezium-protobuf, and protobuf of plain rows.

0 │ id of the schema │ indexes of the message in its file │ Protobuf
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from jobs.core.formats.debezium_fields import DebeziumFields, Encoding, default_encodings
from jobs.core.formats.protobuf.code import ProtobufCode
from jobs.core.formats.protobuf.descriptors import write_proto
from jobs.core.formats.protobuf.messages import TIMES, read_message, read_varint
from jobs.core.formats.protobuf.schema import Field, Message, Schema, parse_schema
from jobs.core.formats.registered import (
    BY_SCHEMA,
    HEADER,
    RegisteredDecoder,
    SchemaError,
    changes_code,
)
from jobs.core.formats.row_fields import compile_decoder, indent
from jobs.core.values.change import Changes, Decoded
from schemas import limits
from schemas.types.sql_types import Kind

_ENUM = "io.debezium.data.Enum"
# A decimal's scale is in each value.
_CONNECT_NAMES = {
    "google.protobuf.Timestamp": "io.debezium.time.ZonedTimestamp",
    "google.type.Date": "io.debezium.time.Date",
    "google.type.TimeOfDay": "io.debezium.time.IsoTime",
    "confluent.type.Decimal": "org.apache.kafka.connect.data.Decimal",
}
_CONNECT_KINDS = {
    **dict.fromkeys(("sint32", "sfixed32"), "int32"),
    **dict.fromkeys(("uint32", "fixed32", "sint64", "sfixed64", "uint64", "fixed64"), "int64"),
    "bool": "boolean",
}


class Root(NamedTuple):
    """The type of a message, with the types that it names."""

    schema: Schema
    message: Message


class ProtobufDecoder(RegisteredDecoder):
    """Decodes debezium-protobuf, or protobuf of plain rows, for one source."""

    def _header_size(self, value: bytes) -> int:
        return _read_indexes(value)[1]

    def _parse_type(self, texts: tuple[str, ...], header: bytes) -> Root:
        schema = _parse(texts)
        return Root(schema, schema.find_root(_read_indexes(header)[0]))

    def _read_content(self, node: Root, value: bytes, at: int) -> object:
        only: dict[str, Any] | None = {column.name: None for column in self._columns} or None
        if only is not None and self._is_envelope:
            source = dict.fromkeys(("ts_ms", *self.table_keys.values()))
            only = {"before": only, "after": only, "source": source, "op": None, "ts_ms": None}
        return read_message(node.schema, node.message, value, at, only=only)

    def _fields_by(self, node: Root) -> DebeziumFields:
        row = self._row_type(node)
        modes = self._rules.modes if self._is_envelope else BY_SCHEMA
        defaults = default_encodings(self._columns, modes)
        fields = [None if row is None else row.field(each.name) for each in self._columns]
        return self._fields_of(
            tuple(
                _encoding(field, column.type.kind, default)
                for field, column, default in zip(fields, self._columns, defaults, strict=True)
            )
        )

    def _row_type(self, node: Root) -> Message | None:
        if not self._is_envelope:
            return node.message
        image = node.message.field("after") or node.message.field("before")
        return None if image is None else node.schema.messages.get(image.kind)

    def _describe(self, node: Root) -> dict[str, object]:
        row = self._row_type(node)
        found: dict[str, object] = {}
        for each in () if row is None else row.fields:
            kind = each.kind.removeprefix("google.protobuf.").removesuffix("Value").lower()
            name, connect = _CONNECT_NAMES.get(each.kind, ""), _CONNECT_KINDS.get(kind, kind)
            if each.repeated or each.kind in node.schema.enums:
                name, connect = ("", "array") if each.repeated else (_ENUM, "string")
            found[each.name] = {"type": connect, "name": name, "parameters": {"scale": "10"}}
        return found

    def _make_reader(self, header: bytes) -> Callable[[bytes], Decoded]:
        node = self._type_of(header)
        fields, tables = self._fields_by(node), self._tables
        code = ProtobufCode(node.schema, fields, tables.names_read)
        if self._is_envelope:
            outcome = self._outcome(code.plus, code.minus)
            body = [*code.read_message(node.message), *outcome]
        else:
            body = [*code.read_rows(node.message), f"return {changes_code(code.plus)}"]
        lines = [
            "def decode(value):",
            f"    at, end, before, after, source = {len(header)}, len(value), False, False, False",
            "    op = es = ts = None",
            *indent(4, code.set_missing(tables.names_read)),
            *indent(4, body),
        ]
        names = code.names | tables.names() | {"Changes": Changes}
        reader: Callable[[bytes], Decoded] = compile_decoder(lines, names)
        return reader


@lru_cache(limits.MESSAGE_SCHEMAS_MAX)
def _parse(texts: tuple[str, ...]) -> Schema:
    return parse_schema([write_proto(text) for text in texts])


def _encoding(field: Field | None, kind: Kind, default: Encoding) -> Encoding:
    """Return the encoding of a column: its field may say more than the connector's modes."""
    if field is not None and field.kind in TIMES:
        return Encoding("iso")
    if field is not None and kind is Kind.DECIMAL:
        return Encoding("base64" if field.kind == "bytes" else "number", default.scale)
    return default


def _read_indexes(value: bytes) -> tuple[list[int], int]:
    """Return the indexes of a message in its file, from outside in, and where they end."""
    if len(value) <= HEADER.size or value[0] or not value[HEADER.size]:
        return [0], HEADER.size + 1
    count, at = _read_index(value, HEADER.size)
    path = []
    if count > limits.MESSAGE_DEPTH_MAX:
        raise SchemaError("the message names no type of its schema")
    for _ in range(count):
        index, at = _read_index(value, at)
        path.append(index)
    return path, at


def _read_index(value: bytes, at: int) -> tuple[int, int]:
    """Return a number of the header: of a type there is one header, which costs code."""
    index, end = read_varint(value, at)
    if index & 1 or end - at > max(1, -(-index.bit_length() // 7)):
        raise SchemaError("the message names no type of its schema")
    return index >> 1, end
