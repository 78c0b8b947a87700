"""canal-json messages as signed rows.

    bytes ── size, encoding, depth ── JSON ── database, table ── type ── columns ──► Changes
                     │                  │           │             │         │
                  Rejected           Rejected    Filtered      Skipped   Rejected, ColumnGone

A message counts as a whole or not at all. The way above exists twice. `decode` is generated for
the columns and knows only what a normal message looks like; it hands any other one to `explain`,
which reads every message, exactly, and says what is wrong with it and where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from jobs.core.formats.canal_batch import PlainMessages, PlainReader
from jobs.core.formats.row_fields import (
    HEAD_LINES,
    TOMBSTONE,
    UNEXPECTED,
    Decode,
    Int64,
    RefusedError,
    RowFields,
    compiled,
    indented,
    milliseconds,
    rejected,
)
from jobs.core.formats.table_filter import TableFilter
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, Decoded, Filtered, Row, Skipped
from jobs.core.values.json_text import UnreadableError, acceptable, read, shown
from jobs.core.values.json_values import TimestampFormat, converter
from schemas import limits

CONTROL = Skipped("transaction or heartbeat")

# INIT is a row of the first snapshot, as some builds of canal send it.
WEIGHTS = {"INSERT": 1, "INIT": 1, "DELETE": -1}
DDL_TYPES = frozenset(
    ["CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX", "QUERY", "INIT-DDL"]
)
CONTROL_TYPES = frozenset(["GTID", "XACOMMIT", "XAROLLBACK", "MHEARTBEAT"])


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
        self._filter = TableFilter(database, table)
        self._read_header = msgspec.json.Decoder(_struct("Header", self._filter.fields())).decode
        self.decode: Decode = self.explain
        self._plain: PlainReader | None = None
        if self._fields.nameable:
            read_envelope = msgspec.json.Decoder(self._envelope()).decode
            self.decode = self._generated(read_envelope)
            self._plain = PlainReader(
                self._fields, self._filter, self._read_header, read_envelope, WEIGHTS, bytes_max
            )

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
        refusal = self._filter.refusal(root)
        if refusal is not None:
            return refusal
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
            return self._fields.after_ddl(root.get("sql"))
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

    # --- the fast way -----------------------------------------------------------------------

    def together(self, values: Sequence[bytes | None]) -> PlainMessages | None:
        """Many messages at once, if they all are plain ones."""
        return None if self._plain is None else self._plain.read(values)

    def _envelope(self) -> type[msgspec.Struct]:
        return _struct(
            "Envelope",
            [
                *self._filter.fields(),
                ("type", str, ""),
                ("isDdl", bool | None, None),
                ("data", list[self._fields.struct("Data", partial=False)], UNSET),  # type: ignore[misc]
                ("old", list[self._fields.struct("Old", partial=True)] | None, None),  # type: ignore[misc]
                ("es", Int64 | None, None),
                ("ts", Int64 | None, None),
            ],
        )

    def _generated(self, read_envelope: Callable[[bytes], Any]) -> Decode:
        names = self._fields.names() | {
            "read_envelope": read_envelope,
            "acceptable": acceptable,
            "bytes_max": self._bytes_max,
            "foreign": self._foreign,
            "explain": self.explain,
            "weights": WEIGHTS,
            "Changes": Changes,
            "tombstone": TOMBSTONE,
            "unexpected": UNEXPECTED,
        }
        return compiled(self._lines(), names | self._filter.names())

    def _lines(self) -> Iterator[str]:
        yield from (
            *HEAD_LINES,
            "    try:",
            "        message = read_envelope(value)",
        )
        yield from indented(8, self._filter.lines("message"))
        yield from (
            "        kind = message.type",
            "        if message.isDdl: return explain(value)",
            "        data = message.data",
            "        changes = []",
            "        if kind in weights:",
            "            weight = weights[kind]",
            "            for row in data:",
        )
        yield from indented(16, self._fields.read_lines("row", "after"))
        yield f"                changes.append((weight, {self._fields.tuple_code('after')}))"
        yield from (
            "        elif kind == 'UPDATE' and len(message.old) >= len(data):",
            "            for row, old in zip(data, message.old):",
        )
        yield from indented(16, self._fields.read_lines("row", "after"))
        yield from indented(16, self._fields.overlay_lines("old", "before", "after"))
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
        return self._filter.foreign(self._read_header, value)


def _rebuilt(made_of: tuple[object, ...], bytes_max: int) -> CanalDecoder:
    """A decoder on the other side of a pickle: generated code does not travel."""
    return CanalDecoder(*made_of, bytes_max=bytes_max)  # type: ignore[arg-type]


def _rows(root: dict[str, object], name: str) -> list[object]:
    rows = root.get(name)
    if not isinstance(rows, list):
        problem = f"{name} is missing" if name not in root else f"{name} is {shown(rows)}"
        raise RefusedError(rejected(f"{problem}; an array of rows belongs there", f"$.{name}"))
    return rows


def _struct(name: str, fields: list[tuple[str, object, object]]) -> type[msgspec.Struct]:
    return msgspec.defstruct(name, fields, gc=False)
