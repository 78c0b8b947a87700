"""Decode debezium-avro, and avro of plain rows, by code that a schema generates."""

from __future__ import annotations

from collections.abc import Callable

from jobs.core.formats.avro_code import MessageCode
from jobs.core.formats.avro_schema import Node, parse_schema, read_value
from jobs.core.formats.debezium_fields import DebeziumFields, schema_encoding
from jobs.core.formats.registered import (
    BY_SCHEMA,
    HEADER,
    RegisteredDecoder,
    SchemaError,
    changes_code,
)
from jobs.core.formats.row_fields import compile_decoder, indent
from jobs.core.values.change import Changes, Decoded

_NULL, _ENUM = Node("null"), "io.debezium.data.Enum"
_CONNECT_KINDS = {"int": "int32", "long": "int64", "fixed": "bytes", "enum": "string"}


class AvroDecoder(RegisteredDecoder):
    """Decodes debezium-avro, or avro of plain rows, for one source."""

    def _parse_type(self, texts: tuple[str, ...], header: bytes) -> Node:
        return parse_schema(texts)

    def _fields_by(self, node: Node) -> DebeziumFields:
        modes = self._rules.modes if self._is_envelope else BY_SCHEMA
        types = self._column_types(node)
        return self._fields_of(
            tuple(
                schema_encoding(types.get(column.name, _NULL).connect_field, column.type, modes)
                for column in self._columns
            )
        )

    def _column_types(self, node: Node) -> dict[str, Node]:
        """Return the types of a row's columns, without NULL."""
        row = node.of_kind("record")
        if row is not None and self._is_envelope:
            image = row.field("after") or row.field("before")
            row = image and image.of_kind("record")
        if row is None:
            return {}
        found = {}
        for label, part in zip(row.labels, row.parts, strict=True):
            parts = part.parts if part.kind == "union" else (part,)
            found[label] = next((each for each in parts if each.kind != "null"), _NULL)
        return found

    def _describe(self, node: Node) -> dict[str, object]:
        return {
            name: {
                "type": _CONNECT_KINDS.get(each.kind, each.kind),
                **(each._replace(meaning=_ENUM) if each.kind == "enum" else each).connect_field,
            }
            for name, each in self._column_types(node).items()
        }

    def _read_content(self, node: Node, value: bytes, at: int) -> object:
        root, end = read_value(node, value, at)
        if end != len(value):
            raise SchemaError(f"{len(value) - end} bytes follow the value of the message")
        return root

    def _make_reader(self, header: bytes) -> Callable[[bytes], Decoded]:
        node = self._type_of(header)
        code = MessageCode(self._fields_by(node), self._tables.names_read)
        if self._is_envelope:
            body = [*code.read_envelope(node), *self._outcome(code.plus, code.minus)]
        else:
            body = [*code.read_row("after", node), f"return {changes_code(code.plus)}"]
        lines = [
            "def decode(value):",
            f"    at, before, after = {HEADER.size}, False, False",
            "    op = es = ts = None",
            *indent(4, code.set_missing(self._tables.names_read)),
            *indent(4, body),
        ]
        reader: Callable[[bytes], Decoded] = compile_decoder(
            lines, code.names | self._tables.names() | {"Changes": Changes}
        )
        return reader
