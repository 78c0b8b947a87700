"""maxwell-json messages as signed rows: one message is one row.

    {"database": "shop", "table": "product", "type": "update", "ts": 1700000000,
     "data": {"id": 7, "name": "b"}, "old": {"name": "a"}}  ──►  -U (7, "a"), +U (7, "b")

`old` has the columns that changed, as in canal. Rows of a bootstrap are inserts, the messages
that begin and end one are skipped. Built like the canal decoder: `decode` for normal messages,
`explain` for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import UNSET

from jobs.core.formats.row_fields import (
    HEAD_LINES,
    TOMBSTONE,
    UNEXPECTED,
    Decode,
    NumberFields,
    RefusedError,
    compiled,
    indented,
    milliseconds,
    rejected,
)
from jobs.core.formats.table_filter import TableFilter
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, Decoded, Filtered, Skipped
from jobs.core.values.json_text import UnreadableError, acceptable, read, shown
from jobs.core.values.json_values import TimestampFormat, converter
from schemas import limits

WEIGHTS = {"insert": 1, "bootstrap-insert": 1, "delete": -1}
MARKS = frozenset(["bootstrap-start", "bootstrap-complete"])
MARK = Skipped("mark of a bootstrap")
DDL_TYPES = frozenset(
    f"{what}-{verb}" for what in ("table", "database") for verb in ("create", "alter", "drop")
)

_SECOND_MS = 1_000
_SECONDS_MAX = (2**63 - 1) // _SECOND_MS
_Seconds = Annotated[int, msgspec.Meta(ge=-_SECONDS_MAX, le=_SECONDS_MAX)]


class MaxwellDecoder:
    """Decodes maxwell-json for one source; built once, then called for every message."""

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
        self._fields = NumberFields(
            columns,
            used,
            lambda sql_type: converter(sql_type, timestamp_format),
            missing_is_null=missing_is_null,
        )
        self._filter = TableFilter(database, table)
        header = msgspec.defstruct("Header", self._filter.fields(), gc=False)
        self._read_header = msgspec.json.Decoder(header).decode
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
            return rejected(f"{shown(root)} is not a maxwell-json object")
        refusal = self._filter.refusal(root)
        if refusal is not None:
            return refusal
        try:
            return self._dispatched(root)
        except RefusedError as error:
            return error.decoded

    def _dispatched(self, root: dict[str, object]) -> Decoded:
        node, fields = root.get("type"), self._fields
        kind = node if isinstance(node, str) else ""
        if kind in MARKS:
            return MARK
        if kind in DDL_TYPES:
            return fields.after_ddl(root.get("sql"))
        if kind in WEIGHTS:
            row = fields.row(root.get("data"), "$.data")
            changes = [(WEIGHTS[kind], fields.pick(row))]
        elif kind == "update":
            after = fields.row(root.get("data"), "$.data")
            before = fields.overlaid(after, root.get("old"), "$.old")
            changes = [(-1, fields.pick(before)), (1, fields.pick(after))]
        else:
            known = "insert, update, delete, the types of a bootstrap and of DDL"
            problem = "is missing" if node is None else f"{shown(node)} is unknown"
            return rejected(f"the type {problem}; known are {known}", "$.type")
        return Changes(changes, _as_milliseconds(milliseconds(root.get("ts"))))

    # --- the fast way -----------------------------------------------------------------------

    def _generated(self) -> Decode:
        fields = self._fields
        envelope = msgspec.defstruct(
            "Envelope",
            [
                *self._filter.fields(),
                ("type", str, ""),
                ("data", fields.struct("Data", partial=False), UNSET),
                ("old", fields.struct("Old", partial=True) | None, None),
                ("ts", _Seconds | None, None),
            ],
            gc=False,
        )
        names = fields.names() | {
            "read_envelope": msgspec.json.Decoder(envelope).decode,
            "acceptable": acceptable,
            "bytes_max": self._bytes_max,
            "foreign": self._foreign,
            "explain": self.explain,
            "weights": WEIGHTS,
            "Changes": Changes,
            "tombstone": TOMBSTONE,
            "unexpected": (*UNEXPECTED, AttributeError),  # of a row that is not there
        }
        return compiled(self._lines(), names | self._filter.names())

    def _lines(self) -> Iterator[str]:
        fields = self._fields
        yield from (*HEAD_LINES, "    try:", "        message = read_envelope(value)")
        yield from indented(8, self._filter.lines("message"))
        yield from (
            "        kind = message.type",
            "        es = message.ts",
            f"        if es is not None: es *= {_SECOND_MS}",
            "        row = message.data",
            "        if kind in weights:",
        )
        yield from indented(12, fields.read_lines("row", "after"))
        row = fields.tuple_code("after")
        yield f"            return Changes([(weights[kind], {row})], es)"
        yield from ("        if kind == 'update':", "            old = message.old")
        yield from indented(12, fields.read_lines("row", "after"))
        # Without a column to look at, nothing else would notice that it is not there.
        yield "            if old is None: return explain(value)"
        yield from indented(12, fields.overlay_lines("old", "before", "after"))
        yield f"            return Changes([(-1, {fields.tuple_code('before')}), (1, {row})], es)"
        yield from (
            "        return explain(value)",
            "    except unexpected:",
            "        return foreign(value) or explain(value)",
        )

    def _foreign(self, value: bytes) -> Filtered | None:
        return self._filter.foreign(self._read_header, value)


def _as_milliseconds(seconds: int | None) -> int | None:
    """Maxwell's own time stamp is in seconds."""
    if seconds is None or abs(seconds) > _SECONDS_MAX:
        return None
    return seconds * _SECOND_MS


def _rebuilt(made_of: tuple[object, ...], bytes_max: int) -> MaxwellDecoder:
    """A decoder on the other side of a pickle: generated code does not travel."""
    return MaxwellDecoder(*made_of, bytes_max=bytes_max)  # type: ignore[arg-type]
