"""Decode canal-json messages: one message has the signed rows of one statement.

    {"type": "UPDATE", "data": [{"id": "7", "cnt": "3"}], "old": [{"cnt": "2"}], ..}
        ──►  -U (7, 2), +U (7, 3)

`old` has only the columns that changed.

    mysqlType ── labels of STRING columns that are an ENUM or a SET ──► a reader for each such set
                   └ none: the plain reader
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from jobs.core.formats.frame import DecoderFrame
from jobs.core.formats.mysql_values import LabelledFields, Labels, labels_of, text_converter
from jobs.core.formats.row_fields import (
    Decode,
    Int64,
    RefusedError,
    RowFields,
    clip,
    compile_decoder,
    indent,
    name_truncate,
    parse_time_ms,
    rejection,
)
from jobs.core.kernels import codes
from jobs.core.values.change import Changes, Decoded, Row, Skipped, Truncated
from jobs.core.values.json_text import describe, read_json
from schemas import limits
from schemas.types.sql_types import Kind

if TYPE_CHECKING:
    from jobs.core.formats.message_scanner import MessageScanner

CONTROL = Skipped("transaction or heartbeat")

# INIT is a row of the first snapshot, as some builds of canal send it.
WEIGHTS = {"INSERT": 1, "INIT": 1, "DELETE": -1}
DDL_TYPES = frozenset(
    ["CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX", "QUERY", "INIT-DDL"]
)
CONTROL_TYPES = frozenset(["GTID", "XACOMMIT", "XAROLLBACK", "MHEARTBEAT"])

_NOT_NORMAL = "raise ValueError('not a normal message')"
_Reader = Callable[[object], Decoded]


class CanalDecoder(DecoderFrame):
    """Decodes canal-json for one source."""

    def _make_fields(self) -> RowFields:
        convert = text_converter(self._rules.timestamp_format, self._rules.binary)
        return RowFields(
            self._columns, self._used, convert, missing_is_null=self._rules.missing_is_null
        )

    @cached_property
    def _with_labels(self) -> Callable[[tuple[Labels | None, ...]], RowFields]:
        return lru_cache(limits.MESSAGE_SCHEMAS_MAX)(self._label)

    @property
    def _has_texts(self) -> bool:
        return any(column.type.kind is Kind.STRING for column in self._columns)

    def _labelled_fields(self, mysql_type: object) -> RowFields:
        labels = labels_of(mysql_type, self._fields.columns)
        size = sum(len(each.column_type) for each in labels if each is not None)
        large = size > limits.CACHED_TYPES_CHARACTERS_MAX
        return self._label(labels) if large else self._with_labels(labels)

    def _label(self, labels: tuple[Labels | None, ...]) -> RowFields:
        return LabelledFields(self._fields, labels) if labels else self._fields

    def make_scanner(self) -> MessageScanner | None:
        """Return a scanner with the same rules; None if it does not know a column's type."""
        return self._make_scanner(
            codes.CANAL,
            self._fields,
            timestamp_format=self._rules.timestamp_format,
            binary_is_latin1=self._rules.binary == "latin1",
            read_labels=self._read_labels,
        )

    def _read_labels(self, types: bytes) -> tuple[Labels | None, ...]:
        return labels_of(read_json(types, len(types)), self._fields.columns)

    # --- the exact path ---------------------------------------------------------------------

    def _decode_json(self, root: object) -> Decoded:
        message = self._require_object(root)
        self._tables.check(message)
        node = message.get("type")
        kind = node if isinstance(node, str) else ""
        if kind == "TRUNCATE":
            times = (parse_time_ms(message.get(name)) for name in ("es", "ts"))
            return Truncated(_name_statement(message), "$.type", *times)
        if message.get("isDdl") is True or kind in DDL_TYPES:
            return self._fields.check_ddl(message.get("sql"))
        if kind in CONTROL_TYPES:
            return CONTROL
        fields = self._labelled_fields(message.get("mysqlType"))
        if kind == "UPDATE":
            data, old = _rows(message, "data"), _rows(message, "old")
            changes = list(_split_updates(fields, data, old))
        elif kind in WEIGHTS:
            weight = WEIGHTS[kind]
            changes = [
                (weight, fields.pick(fields.parse_row(row, f"$.data[{index}]")))
                for index, row in enumerate(_rows(message, "data"))
            ]
        else:
            known = "INSERT, UPDATE, DELETE, INIT and the types of DDL"
            problem = "is missing" if node is None else f"{describe(node)} is unknown"
            return rejection(f"the type {problem}; known are {known}", "$.type")
        stamps = (parse_time_ms(message.get(name)) for name in ("es", "ts", "id"))
        return Changes(changes, *stamps)

    # --- the fast path ----------------------------------------------------------------------

    def _envelope(self) -> type[msgspec.Struct]:
        data = self._fields.make_struct("Data", partial=False)
        old = self._fields.make_struct("Old", partial=True)
        fields: list[Any] = [
            *self._tables.fields(),
            ("type", str, ""),
            ("isDdl", bool | None, None),
            ("data", list[data], UNSET),  # type: ignore[valid-type]
            ("old", list[old] | None, None),  # type: ignore[valid-type]
            ("es", Int64 | None, None),
            ("ts", Int64 | None, None),
            ("id", Int64 | None, None),
        ]
        if self._has_texts:
            fields.append(("mysqlType", Raw | UnsetType, UNSET))
        return msgspec.defstruct("Envelope", fields, gc=False)

    def _fast_decode(self) -> Decode:
        read_envelope = msgspec.json.Decoder(self._envelope()).decode
        reader_of = lru_cache(limits.MESSAGE_SCHEMAS_MAX)(self._make_reader)
        names = self._fields.names() | {"weights": WEIGHTS, "reader_of": reader_of}
        return self._generate(read_envelope, self._lines(), names)

    def _lines(self) -> Iterator[str]:
        yield from self._tables.lines("message")
        if self._has_texts:
            yield "if message.mysqlType is not UNSET:"
            yield "    types = bytes(message.mysqlType)"
            yield f"    if len(types) > {limits.CACHED_TYPES_CHARACTERS_MAX}: {_NOT_NORMAL}"
            yield "    if read := reader_of(types): return read(message)"
        yield from _row_lines(self._fields)

    def _make_reader(self, mysql_type: bytes) -> _Reader | None:
        """Return a function from an envelope to its changes; None if no STRING has labels."""
        fields = self._labelled_fields(read_json(mysql_type, len(mysql_type)))
        if fields is self._fields:
            return None
        names = fields.names() | {"Changes": Changes, "weights": WEIGHTS}
        lines = ("def decode(message):", *indent(4, _row_lines(fields)))
        reader: _Reader = compile_decoder(lines, names)
        return reader


def _split_updates(
    fields: RowFields, data: list[object], old: list[object]
) -> Iterator[tuple[int, Row]]:
    """Yield -U and +U of each row; each row has its own changed columns in `old`."""
    if len(old) < len(data):
        reason = f"old has {len(old)} rows, data has {len(data)}"
        raise RefusedError(rejection(reason, "$.old"))
    for index, (node, old_node) in enumerate(zip(data, old, strict=False)):
        after = fields.parse_row(node, f"$.data[{index}]")
        before = fields.overlay(after, old_node, f"$.old[{index}]")
        yield -1, fields.pick(before)
        yield 1, fields.pick(after)


def _row_lines(fields: RowFields) -> Iterator[str]:
    """Yield lines that return the changes of `message`, or raise for an unusual one."""
    before, after = fields.tuple_code("before"), fields.tuple_code("after")
    yield "kind = message.type"
    yield f"if message.isDdl: {_NOT_NORMAL}"
    yield "data = message.data"
    yield "changes = []"
    yield "if kind in weights:"
    yield "    weight = weights[kind]"
    yield "    for row in data:"
    yield from indent(8, fields.read_lines("row", "after"))
    yield f"        changes.append((weight, {after}))"
    yield "elif kind == 'UPDATE' and len(message.old) >= len(data):"
    yield "    for row, old in zip(data, message.old):"
    yield from indent(8, fields.read_lines("row", "after"))
    yield from indent(8, fields.overlay_lines("old", "before", "after"))
    yield f"        changes.append((-1, {before}))"
    yield f"        changes.append((1, {after}))"
    yield f"else: {_NOT_NORMAL}"
    yield "return Changes(changes, message.es, message.ts, message.id)"


def _name_statement(message: dict[str, object]) -> str:
    """Return the SQL of a message, as canal sends it; its type and table if it has none."""
    sql = message.get("sql")
    if isinstance(sql, str) and sql.strip():
        return clip(sql)
    return name_truncate(message.get("database"), message.get("table"))


def _rows(message: dict[str, object], name: str) -> list[object]:
    rows = message.get(name)
    if not isinstance(rows, list):
        problem = f"{name} is missing" if name not in message else f"{name} is {describe(rows)}"
        raise RefusedError(rejection(f"{problem}; an array of rows belongs there", f"$.{name}"))
    return rows
