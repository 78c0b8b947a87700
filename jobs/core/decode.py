"""canal-json messages as signed rows.

    bytes ── size, encoding, depth ── JSON ── database, table ── type ── columns ──► Changes
                     │                  │           │             │         │
                  Rejected           Rejected    Filtered      Skipped   Rejected, ColumnGone

A message counts as a whole or not at all. The way above exists twice. `decode` is generated for
the columns and knows only what a normal message looks like; it hands any other one to `explain`,
which reads every message, exactly, and says what is wrong with it and where.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from jobs.core.change import Changes, ColumnGone, Decoded, Filtered, Row, Skipped, Value
from jobs.core.ddl import lost_columns
from jobs.core.json_text import UnreadableError, acceptable, read, shown
from jobs.core.plan import Column
from jobs.core.row_fields import (
    HEAD_LINES,
    TOMBSTONE,
    UNEXPECTED,
    Decode,
    Memo,
    RefusedError,
    RowFields,
    clipped,
    compiled,
    milliseconds,
    rejected,
)
from jobs.core.values import TimestampFormat, converter
from schemas import limits

FILTERED = Filtered()
DDL = Skipped("ddl")
CONTROL = Skipped("transaction or heartbeat")

# INIT is a row of the first snapshot, as some builds of canal send it.
WEIGHTS = {"INSERT": 1, "INIT": 1, "DELETE": -1}
DDL_TYPES = frozenset(
    ["CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX", "QUERY", "INIT-DDL"]
)
CONTROL_TYPES = frozenset(["GTID", "XACOMMIT", "XAROLLBACK", "MHEARTBEAT"])

_TABLES_REMEMBERED = 10_000
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class CanalDecoder:
    """Decodes canal-json for one source; built once, then called for every message."""

    def __init__(
        self,
        columns: tuple[Column, ...],
        used: tuple[Column, ...],
        database: str | None = None,
        table: str | None = None,
        timestamp_format: TimestampFormat = "sql",
        missing_is_null: bool = False,
        *,
        bytes_max: int = limits.MESSAGE_BYTES_MAX,
    ) -> None:
        self._made_of = (columns, used, database, table, timestamp_format, missing_is_null)
        self._bytes_max = bytes_max
        self._fields = RowFields(
            columns,
            used,
            lambda sql_type: converter(sql_type, timestamp_format),
            missing_is_null=missing_is_null,
        )
        self._filters = {
            name: _filter(pattern)
            for name, pattern in (("database", database), ("table", table))
            if pattern is not None
        }
        self._read_header = msgspec.json.Decoder(_struct("Header", self._filter_fields())).decode
        self.decode = self._generated() if self._fields.nameable else self.explain

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (self._made_of, self._bytes_max)

    # --- the exact way ----------------------------------------------------------------------

    def explain(self, value: bytes | None) -> Decoded:
        """Decode any message; slower than `decode`, with the same result."""
        if not value:
            return TOMBSTONE
        try:
            root = read(value, self._bytes_max)
        except UnreadableError as error:
            return rejected(str(error))
        if not isinstance(root, dict):
            return rejected(f"{shown(root)} is not a canal-json object")
        for name, matches in self._filters.items():
            if name not in root:
                return rejected(f"{name} is missing, and the source filters by it", f"$.{name}")
            if not matches[_filter_text(root[name])]:
                return FILTERED
        try:
            return self._dispatched(root)
        except RefusedError as error:
            return error.decoded

    def _dispatched(self, root: dict[str, object]) -> Decoded:
        node = root.get("type")
        kind = node if isinstance(node, str) else ""
        if kind == "TRUNCATE":
            reason = "TRUNCATE removes rows that it does not name; it cannot become retractions"
            return rejected(reason, "$.type")
        if root.get("isDdl") is True or kind in DDL_TYPES:
            return self._ddl(root.get("sql"))
        if kind in CONTROL_TYPES:
            return CONTROL
        if kind == "UPDATE":
            changes = list(self._updates(_rows(root, "data"), _rows(root, "old")))
        elif kind in WEIGHTS:
            weight = WEIGHTS[kind]
            changes = [
                (weight, self._fields.pick(self._fields.row(node, f"$.data[{place}]")))
                for place, node in enumerate(_rows(root, "data"))
            ]
        else:
            known = "INSERT, UPDATE, DELETE, INIT and the types of DDL"
            problem = "is missing" if node is None else f"{shown(node)} is unknown"
            return rejected(f"the type {problem}; known are {known}", "$.type")
        return Changes(changes, milliseconds(root.get("es")), milliseconds(root.get("ts")))

    def _updates(self, data: list[object], old: list[object]) -> Iterator[tuple[int, Row]]:
        """-U and +U of each row; what changed is told row by row."""
        if len(old) < len(data):
            reason = f"old has {len(old)} rows, data has {len(data)}"
            raise RefusedError(rejected(reason, "$.old"))
        for place, (node, old_node) in enumerate(zip(data, old, strict=False)):
            after = self._fields.row(node, f"$.data[{place}]")
            before = self._fields.overlaid(after, old_node, f"$.old[{place}]")
            yield -1, self._fields.pick(before)
            yield 1, self._fields.pick(after)

    def _ddl(self, sql: object) -> Decoded:
        if self._fields.missing_is_null or not isinstance(sql, str):
            return DDL
        # MySQL does not tell the case of column names apart.
        declared = {column.name.casefold(): column.name for column in self._fields.columns}
        for lost, new_name in lost_columns(sql):
            name = declared.get(lost.casefold())
            if name is not None and name != new_name:
                what = "drops it" if new_name is None else f"renames it to {shown(new_name)}"
                return ColumnGone(name, clipped(f"DDL {what}: {shown(sql)}"))
        return DDL

    # --- the fast way -----------------------------------------------------------------------

    def _filter_fields(self) -> list[tuple[str, object, object]]:
        return [(name, str | UnsetType | None, UNSET) for name in self._filters]

    def _generated(self) -> Decode:
        envelope = _struct(
            "Envelope",
            [
                *self._filter_fields(),
                ("type", str, ""),
                ("isDdl", bool | None, None),
                ("data", list[self._fields.struct("Data", partial=False)], UNSET),  # type: ignore[misc]
                ("old", list[self._fields.struct("Old", partial=True)] | None, None),  # type: ignore[misc]
                ("es", _Int64 | None, None),
                ("ts", _Int64 | None, None),
            ],
        )
        names = self._fields.names() | {
            "read_envelope": msgspec.json.Decoder(envelope).decode,
            "acceptable": acceptable,
            "bytes_max": self._bytes_max,
            "foreign": self._foreign,
            "explain": self.explain,
            "weights": WEIGHTS,
            "Changes": Changes,
            "tombstone": TOMBSTONE,
            "filtered": FILTERED,
            "unexpected": UNEXPECTED,
        }
        names |= {f"is_wanted_{name}": matches for name, matches in self._filters.items()}
        return compiled(self._lines(), names)

    def _lines(self) -> Iterator[str]:
        yield from (
            *HEAD_LINES,
            "    try:",
            "        message = read_envelope(value)",
        )
        for name in self._filters:
            yield f"        if not is_wanted_{name}[message.{name}]: return filtered"
        yield from (
            "        kind = message.type",
            "        if message.isDdl: return explain(value)",
            "        data = message.data",
            "        changes = []",
            "        if kind in weights:",
            "            weight = weights[kind]",
            "            for row in data:",
        )
        yield from _indented(16, self._fields.read_lines("row", "after"))
        yield f"                changes.append((weight, {self._fields.tuple_code('after')}))"
        yield from (
            "        elif kind == 'UPDATE' and len(message.old) >= len(data):",
            "            for row, old in zip(data, message.old):",
        )
        yield from _indented(16, self._fields.read_lines("row", "after"))
        yield from _indented(16, self._fields.overlay_lines("old", "before", "after"))
        yield f"                changes.append((-1, {self._fields.tuple_code('before')}))"
        yield f"                changes.append((1, {self._fields.tuple_code('after')}))"
        yield from (
            "        else:",
            "            return explain(value)",
            "        return Changes(changes, message.es, message.ts)",
            "    except unexpected:",
            "        return foreign(value) or explain(value)",
        )

    def _foreign(self, value: bytes) -> Filtered | None:
        """Whether a message is of another table, whose rows need not look like ours."""
        try:
            header = self._read_header(value)
            for name, matches in self._filters.items():
                if not matches[getattr(header, name)]:
                    return FILTERED
        except UNEXPECTED:
            pass
        return None


def _rebuilt(made_of: tuple[object, ...], bytes_max: int) -> CanalDecoder:
    """A decoder on the other side of a pickle: generated code does not travel."""
    return CanalDecoder(*made_of, bytes_max=bytes_max)  # type: ignore[arg-type]


def _filter(pattern: str) -> Memo:
    try:
        matches = re.compile(pattern).fullmatch
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None

    def wanted(field: object) -> Value:
        if field is UNSET:
            raise ValueError("missing")
        return matches("null" if field is None else str(field)) is not None

    return Memo(wanted, _TABLES_REMEMBERED)


def _filter_text(node: object) -> str:
    """A node as Jackson's asText has it: null is the text null, a container is empty."""
    if node is None:
        return "null"
    if isinstance(node, bool):
        return "true" if node else "false"
    return str(node) if isinstance(node, str) else ""


def _rows(root: dict[str, object], name: str) -> list[object]:
    rows = root.get(name)
    if not isinstance(rows, list):
        problem = f"{name} is missing" if name not in root else f"{name} is {shown(rows)}"
        raise RefusedError(rejected(f"{problem}; an array of rows belongs there", f"$.{name}"))
    return rows


def _struct(name: str, fields: list[tuple[str, object, object]]) -> type[msgspec.Struct]:
    return msgspec.defstruct(name, fields, gc=False)


def _indented(blanks: int, lines: Iterator[str]) -> Iterator[str]:
    return (" " * blanks + line for line in lines)
