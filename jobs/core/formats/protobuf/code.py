"""Generate the code that reads the columns of usual Protobuf messages of one type.

    tag of a known field ──► its value ──► a local of its own
    any other tag        ──► skip          what is absent keeps its default

As for Avro, the code raises for what it does not expect, and the exact path then decodes the
message: a message twice, a number that does not fit. A value of another wire type is skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from jobs.core.formats.avro_code import MessageCode
from jobs.core.formats.avro_schema import Node
from jobs.core.formats.debezium_fields import DebeziumFields
from jobs.core.formats.protobuf.messages import (
    FIXED,
    absent_value,
    read_message,
    read_varint,
    to_json,
    wire_of,
)
from jobs.core.formats.protobuf.schema import Field, Message, Schema
from jobs.core.formats.registered import SchemaError
from jobs.core.formats.row_fields import Memo, indent
from jobs.core.values.change import Value
from jobs.core.values.json_values import Converter
from schemas import limits

Lines = Iterator[str]
_NODES = {kind: kind for kind in ("string", "bytes", "double", "float")} | {"bool": "boolean"}
_SIZED, _VARINT = 2, 0
_NO_VALUE = object()  # of a column that has none without its field, for example "" as a date


def _skip(value: bytes, at: int) -> int:
    """Return where the field ends that starts at a byte."""
    tag, at = read_varint(value, at)
    wire = tag & 7
    if wire == _VARINT:
        return read_varint(value, at)[1]
    if wire == _SIZED:
        size, at = read_varint(value, at)
        return at + size
    if wire not in (1, 5):
        raise SchemaError("a group")
    return at + (8 if wire == 1 else 4)


def _convert_message(
    schema: Schema, inner: Message, convert: Converter, depth: int, values_max: int, raw: Any
) -> Value:
    return convert(read_message(schema, inner, raw, 0, depth, None, [values_max]))


def _convert_enum(schema: Schema, kind: str, convert: Converter, raw: Any) -> Value:
    return convert(to_json(schema, kind, raw))


class ProtobufCode(MessageCode):
    """The lines of code for messages of a type, and the names that they use."""

    def __init__(self, schema: Schema, fields: DebeziumFields, tables: tuple[str, ...]) -> None:
        super().__init__(fields, tables)
        self._schema = schema
        self._depth = 2  # of messages that are columns
        self.names |= {"read_varint": read_varint, "skip": _skip, "no_value": _NO_VALUE}

    def read_message(self, message: Message) -> Lines:
        """Yield lines that read a message of Debezium."""
        self._depth = 3
        known = {
            "before": lambda field: self._read_inner(field, "before"),
            "after": lambda field: self._read_inner(field, "after"),
            "source": lambda field: self._read_inner(field, "source"),
            "op": lambda field: self._read_text_of(field, "op"),
            "ts_ms": lambda field: self._read_time_of(field, "ts"),
        }
        yield from self._set_absent(message, {"ts_ms": "ts"})
        yield from self._read_fields(message, known, "end")

    def _set_absent(self, message: Message, targets: Mapping[str, str]) -> Lines:
        """Yield lines for fields that are 0 or empty if a message lacks them."""
        for name, target in targets.items():
            field = message.field(name)
            if field is not None and not field.has_presence and not field.repeated:
                yield f"{target} = {0 if field.kind == 'int64' else repr('')}"

    def read_rows(self, message: Message) -> Lines:
        """Yield lines that read a message that is a row."""
        yield from self._read_columns(message, "after", "end")

    def _read_fields(
        self, message: Message, known: Mapping[str, Callable[[Field], Lines]], end: str
    ) -> Lines:
        yield from (f"while at < {end}:", "    began, tag = at, value[at]")
        yield from ("    if tag < 128: at += 1", "    else: tag, at = read_varint(value, at)")
        word = "if"
        for field in message.fields:
            if field.name in known:
                wire = wire_of(self._schema, field.kind)
                yield f"    {word} tag == {field.number << 3 | wire}:"
                yield from indent(8, known[field.name](field))
                word = "elif"
        yield f"    {'' if word == 'if' else 'else: '}at = skip(value, began)"
        yield f"if at != {end}: raise ValueError('size')"

    def _read_inner(self, field: Field, target: str) -> Lines:
        message = self._schema.messages.get(field.kind)
        if message is None or field.repeated:
            raise SchemaError("the envelope has another type")
        yield f"if {target}: raise ValueError('again')"
        yield from self._read_size()
        yield f"{target}_end = at + size"
        if target == "source":
            known: dict[str, Callable[[Field], Lines]] = {
                "ts_ms": lambda field: self._read_time_of(field, "es")
            }
            for name in self._tables:
                known[name] = lambda field, name=name: self._read_text_of(field, name)  # type: ignore[misc]
            absent = {name: name for name in self._tables} | {"ts_ms": "es"}
            yield from self._set_absent(message, absent)
            yield from self._read_fields(message, known, "source_end")
            yield "source = True"
        else:
            yield from self._read_columns(message, target, f"{target}_end")

    def _read_columns(self, message: Message, image: str, end: str) -> Lines:
        known: dict[str, Callable[[Field], Lines]] = {}
        required = []
        for index, column in enumerate(self._fields.columns):
            field, target = message.field(column.name), f"{image}{index}"
            if field is None and not self._fields.missing_is_null:
                raise SchemaError("the schema lacks a column")
            default: object = None
            if field is not None:
                if field.repeated:
                    raise SchemaError("a column is repeated")
                known[column.name] = lambda field, index=index, target=target: (  # type: ignore[misc]
                    self._read_column_of(field, index, target)
                )
                absent = absent_value(self._schema, field)
                try:
                    default = None if absent is None else self._fields.converters[index](absent)
                except ValueError:
                    default = _NO_VALUE
                    required.append(target)
            yield f"{target} = {self._bind(default)}"
        yield from self._read_fields(message, known, end)
        for target in required:
            yield f"if {target} is no_value: raise ValueError('absent')"
        yield f"{image} = True"

    def _read_column_of(self, field: Field, index: int, target: str) -> Lines:
        yield from self._read_raw(field)
        kind, convert, schema = field.kind, self._fields.converters[index], self._schema
        inner = schema.messages.get(kind)
        entries = max(1, limits.MEMO_ENTRIES_MAX // len(self._fields.columns))
        if inner is not None:
            yield f"if {target} is not None: raise ValueError('again')"
            # All of them have no more than the exact path takes.
            values_max = limits.MESSAGE_VALUES_MAX // (2 * len(self._fields.columns))
            read = partial(_convert_message, schema, inner, convert, self._depth, values_max)
            memo = Memo(read, entries)
            yield f"raw = {self._bind(memo)}[raw]"
        elif kind in schema.enums:
            memo = Memo(partial(_convert_enum, schema, kind, convert), entries)
            yield f"raw = {self._bind(memo)}[raw]"
        else:
            yield from self._convert(index, Node(_NODES.get(kind, "long")))
        yield f"{target} = raw"

    def _read_text_of(self, field: Field, target: str) -> Lines:
        if field.kind != "string" or field.repeated:
            raise SchemaError("the envelope has another type")
        yield from self._read_raw(field)
        yield f"{target} = raw"

    def _read_time_of(self, field: Field, target: str) -> Lines:
        if field.kind != "int64" or field.repeated:
            raise SchemaError("the envelope has another type")
        yield from self._read_raw(field)
        yield f"{target} = raw"

    def _read_size(self, *_: Any) -> Lines:
        yield from ("size = value[at]", "at += 1")
        yield "if size > 127: size, at = read_varint(value, at - 1)"

    def _read_raw(self, field: Field) -> Lines:
        """Yield lines that set `raw` to a value of a field."""
        kind = field.kind
        if kind in FIXED:
            form = struct.Struct(FIXED[kind])
            yield f"raw, = {self._bind(form.unpack_from)}(value, at)"
            yield f"at += {form.size}"
        elif kind in ("string", "bytes") or kind in self._schema.messages:
            yield from self._read_size()
            yield from ("start, at = at, at + size", "if at > end: raise ValueError('size')")
            yield f"raw = value[start:at]{'.decode()' if kind == 'string' else ''}"
        else:
            yield from ("raw = value[at]", "at += 1")
            yield "if raw > 127: raw, at = read_varint(value, at - 1)"
            bits = 64 if kind.endswith("64") else 32
            if kind == "bool":
                yield "raw = raw != 0"
            elif kind.startswith("uint"):
                yield f"if raw >> {bits}: raise ValueError('range')"
            elif kind.startswith("sint"):
                yield f"if raw >> {bits}: raise ValueError('range')"
                yield "raw = raw >> 1 ^ -(raw & 1)"
            else:
                yield f"if raw >> {bits - 1}:"
                yield f"    raw -= {1 << 64}"
                yield f"    if not {-(1 << bits - 1)} <= raw < 0: raise ValueError('range')"
