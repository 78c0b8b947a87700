"""Decode Avro messages whose schema a registry has: debezium-avro, and avro of plain rows.

    0 │ id of the schema, 4 bytes │ Avro
        └► the registry's schema ──► generated code: skip what no column needs, read the rest
                                └──► unusual messages: all of it as JSON, as debezium-json has it

A message is read by the schema that wrote it, and its columns are found by name. So a column that
a schema lacks is as one that a JSON message lacks (`on_schema_change`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

from jobs.core.formats.avro_code import MessageCode
from jobs.core.formats.avro_schema import (
    AvroError,
    Node,
    UnknownSchemaError,
    parse_schema,
    read_value,
)
from jobs.core.formats.debezium import INSERTS, DebeziumDecoder
from jobs.core.formats.debezium_fields import (
    DebeziumFields,
    Encoding,
    Modes,
    schema_encoding,
)
from jobs.core.formats.frame import FormatRules
from jobs.core.formats.row_fields import (
    UNEXPECTED,
    Decode,
    RefusedError,
    clip,
    compile_decoder,
    indent,
)
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, Decoded, RejectCode, Rejected
from jobs.core.values.json_text import UnreadableError
from schemas import limits

# Returns the schemas of an id, of which the last one may name types of those before it.
FindSchema = Callable[[int], tuple[str, ...]]

_HEADER = struct.Struct(">BI")
_UNUSUAL = (*UNEXPECTED, IndexError, struct.error)
# Without Connect's name of a type, a number may be a date, but is no time.
_BY_SCHEMA = Modes(times="isostring")


class AvroDecoder(DebeziumDecoder):
    """Decodes debezium-avro, or avro of plain rows, for one source."""

    def __init__(
        self,
        rules: FormatRules,
        columns: tuple[Column, ...],
        used: tuple[Column, ...],
        bytes_max: int = limits.MESSAGE_BYTES_MAX,
        find_schema: FindSchema | None = None,
    ) -> None:
        self._parse = lru_cache(limits.MESSAGE_SCHEMAS_MAX)(partial(_find_type, find_schema))
        self._is_envelope = rules.format == "debezium-avro"
        super().__init__(rules, columns, used, bytes_max)
        self._constructor = rules, columns, used, bytes_max, find_schema

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._constructor

    def make_scanner(self) -> None:
        return None

    def _fields_by(self, node: Node) -> DebeziumFields:
        """Return the columns of messages of a type."""
        row, modes = node.of_kind("record"), self._rules.modes if self._is_envelope else _BY_SCHEMA
        if row is not None and self._is_envelope:
            image = row.field("after") or row.field("before")
            row = image and image.of_kind("record")
        types = [row and row.field(column.name) for column in self._columns]
        encodings: list[Encoding] = []
        for column, found in zip(self._columns, types, strict=True):
            parts = () if found is None else found.parts if found.kind == "union" else (found,)
            known = next((each for each in parts if each.kind != "null"), Node("null"))
            encodings.append(schema_encoding(known.connect_field, column.type, modes))
        return self._fields_of(tuple(encodings))

    # --- the exact path ---------------------------------------------------------------------

    def _read(self, value: bytes) -> object:
        """Return the type and the JSON of a message."""
        if len(value) > self._bytes_max:
            reason = f"the message has {len(value)} bytes; the limit is {self._bytes_max}"
            raise UnreadableError(reason)
        try:
            node = self._parse(value[: _HEADER.size])
            root, end = read_value(node, value, _HEADER.size)
        except UnknownSchemaError as error:
            rejected = Rejected(clip(str(error)), code=RejectCode.SCHEMA)
            raise RefusedError(rejected) from None
        except AvroError as error:
            raise UnreadableError(str(error)) from None
        except IndexError:
            raise UnreadableError("the message ends within a value") from None
        if end != len(value):
            raise UnreadableError(f"{len(value) - end} bytes follow the value of the message")
        return node, root

    def _decode_json(self, root: Any) -> Decoded:
        node, content = root
        message, fields = self._require_object(content), self._fields_by(node)
        if self._is_envelope:
            return self._decode_payload(message, fields, "$")
        return Changes([(1, fields.pick(fields.parse_row(message, "$")))])

    def read_source(self, value: bytes) -> dict[str, object]:
        """Return the object of a decoded message that names its database and table."""
        root: Any = self._read(value)
        source = root[1].get("source")
        return source if isinstance(source, dict) else {}

    # --- the fast path ----------------------------------------------------------------------

    def _fast_decode(self) -> Decode:
        readers, bytes_max = _Readers(self._make_reader), self._bytes_max

        def decode(value: bytes | None, key: bytes | None = None, /) -> Decoded:
            if value and len(value) <= bytes_max:
                try:
                    return readers[value[: _HEADER.size]](value)
                except _UNUSUAL:
                    pass
            return self.explain(value, key)

        return decode

    def _make_reader(self, header: bytes) -> Callable[[bytes], Decoded]:
        """Return a function that reads usual messages of a schema."""
        node = self._parse(header)
        code = MessageCode(self._fields_by(node), self._tables.names_read)
        if self._is_envelope:
            body = [*code.read_envelope(node), *self._outcome(code)]
        else:
            body = [*code.read_row("after", node), f"return {_changes(code.plus)}"]
        lines = [
            "def decode(value):",
            f"    at, before, after = {_HEADER.size}, False, False",
            "    op = es = ts = None",
            *indent(4, code.set_missing(self._tables.names_read)),
            *indent(4, body),
        ]
        reader: Callable[[bytes], Decoded] = compile_decoder(
            lines, code.names | self._tables.names() | {"Changes": Changes}
        )
        return reader

    def _outcome(self, code: MessageCode) -> Iterator[str]:
        for name in self._tables.names_read:
            yield f"if not is_wanted_{name}[{name}]: return filtered"
        yield f"if op in {INSERTS!r} and after: return {_changes(code.plus)}"
        yield f"if op == 'd' and before: return {_changes(code.minus)}"
        yield f"if op == 'u' and after and before: return {_changes(code.minus, code.plus)}"
        if self._rules.last_images:
            yield f"if op == 'u' and after: return {_changes(code.plus)}"
        yield "raise ValueError('op')"


class _Readers(dict[bytes, Callable[[bytes], Decoded]]):
    """The readers of messages by their first bytes."""

    def __init__(self, make: Callable[[bytes], Callable[[bytes], Decoded]]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, header: bytes) -> Callable[[bytes], Decoded]:
        if len(self) >= limits.MESSAGE_SCHEMAS_MAX:
            self.clear()
        try:
            reader = self._make(header)
        except UnknownSchemaError:  # perhaps it is known later
            raise
        except AvroError as error:
            reader = _refuse(str(error))
        self[header] = reader
        return reader


def _refuse(reason: str) -> Callable[[bytes], Decoded]:
    """Return a reader that leaves every message to the exact path."""

    def read(_: bytes) -> Decoded:
        raise ValueError(reason)

    return read


def _changes(*rows: str) -> str:
    return f"Changes([{', '.join(rows)}], es, ts)"


def _find_type(find_schema: FindSchema | None, header: bytes) -> Node:
    """Return the type of messages that start with these bytes; raise AvroError without one."""
    if len(header) < _HEADER.size or header[0]:
        raise AvroError(
            "the message does not start with 0 and the id of a schema; is it written with the "
            "serializer of a schema registry?"
        )
    if find_schema is None:
        raise UnknownSchemaError("no schema registry is at hand to read this message")
    return parse_schema(find_schema(_HEADER.unpack(header)[1]))
