"""Decode Protobuf messages: debezium-protobuf, and protobuf of plain rows.

0 │ id of the schema │ indexes of the message in its file │ Protobuf
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jobs.core.formats.debezium_fields import DebeziumFields, Encoding, default_encodings
from jobs.core.formats.protobuf.messages import TIMES, read_message, read_varint
from jobs.core.formats.protobuf.schema import Field, Message, Schema, parse_schema
from jobs.core.formats.registered import BY_SCHEMA, HEADER, RegisteredDecoder, SchemaError
from jobs.core.values.change import Decoded
from schemas import limits
from schemas.types.sql_types import Kind


class Root(NamedTuple):
    """The type of a message, with the types that it names."""

    schema: Schema
    message: Message


class ProtobufDecoder(RegisteredDecoder):
    """Decodes debezium-protobuf, or protobuf of plain rows, for one source."""

    def _header_size(self, value: bytes) -> int:
        return _read_indexes(value)[1]

    def _parse_type(self, texts: tuple[str, ...], header: bytes) -> Root:
        schema = parse_schema(texts)
        return Root(schema, schema.find_root(_read_indexes(header)[0]))

    def _read_content(self, node: Root, value: bytes, at: int) -> object:
        return read_message(node.schema, node.message, value, at)

    def _fields_by(self, node: Root) -> DebeziumFields:
        row: Message | None = node.message
        if self._is_envelope:
            image = node.message.field("after") or node.message.field("before")
            row = None if image is None else node.schema.messages.get(image.kind)
        modes = self._rules.modes if self._is_envelope else BY_SCHEMA
        defaults = default_encodings(self._columns, modes)
        fields = [None if row is None else row.field(each.name) for each in self._columns]
        return self._fields_of(
            tuple(
                _encoding(field, column.type.kind, default)
                for field, column, default in zip(fields, self._columns, defaults, strict=True)
            )
        )

    def _make_reader(self, header: bytes) -> Callable[[bytes], Decoded]:
        return self.explain


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
    count, at = read_varint(value, HEADER.size)
    path = []
    if count & 1 or count >> 1 > limits.MESSAGE_DEPTH_MAX:
        raise SchemaError("the message names no type of its schema")
    for _ in range(count >> 1):
        index, at = read_varint(value, at)
        path.append(index >> 1)
    return path, at
