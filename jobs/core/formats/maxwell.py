"""Decode maxwell-json messages: one message is one row.

    {"database": "shop", "table": "product", "type": "update", "ts": 1700000000,
     "data": {"id": 7, "name": "b"}, "old": {"name": "a"}}  ──►  -U (7, "a"), +U (7, "b")

`old` has only the columns that changed, as in canal-json. Rows of a bootstrap are inserts; the
messages that start and end a bootstrap are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import UNSET

from jobs.core.formats.frame import DecoderFrame
from jobs.core.formats.row_fields import (
    UNEXPECTED,
    Decode,
    NumberFields,
    RowFields,
    indent,
    parse_time_ms,
    rejection,
)
from jobs.core.kernels import codes
from jobs.core.values.change import Changes, Decoded, Skipped
from jobs.core.values.json_text import describe
from jobs.core.values.json_values import converter

if TYPE_CHECKING:
    from jobs.core.formats.message_scanner import MessageScanner

WEIGHTS = {"insert": 1, "bootstrap-insert": 1, "delete": -1}
MARKS = frozenset(["bootstrap-start", "bootstrap-complete"])
MARK = Skipped("mark of a bootstrap")
DDL_TYPES = frozenset(
    f"{what}-{verb}" for what in ("table", "database") for verb in ("create", "alter", "drop")
)

_SECOND_MS = 1_000
_SECONDS_MAX = (2**63 - 1) // _SECOND_MS
_Seconds = Annotated[int, msgspec.Meta(ge=-_SECONDS_MAX, le=_SECONDS_MAX)]


class MaxwellDecoder(DecoderFrame):
    """Decodes maxwell-json for one source."""

    def _make_fields(self) -> RowFields:
        rules = self._rules
        convert = partial(converter, timestamp_format=rules.timestamp_format)
        return NumberFields(
            self._columns, self._used, convert, missing_is_null=rules.missing_is_null
        )

    def make_scanner(self) -> MessageScanner | None:
        """Return a scanner with the same rules; None if it does not know a column's type."""
        return self._make_scanner(
            codes.MAXWELL, self._fields, timestamp_format=self._rules.timestamp_format
        )

    def _decode_json(self, root: object) -> Decoded:
        message, fields = self._require_object(root), self._fields
        self._tables.check(message)
        node = message.get("type")
        kind = node if isinstance(node, str) else ""
        if kind in MARKS:
            return MARK
        if kind in DDL_TYPES:
            return fields.check_ddl(message.get("sql"))
        if kind in WEIGHTS:
            row = fields.parse_row(message.get("data"), "$.data")
            changes = [(WEIGHTS[kind], fields.pick(row))]
        elif kind == "update":
            after = fields.parse_row(message.get("data"), "$.data")
            before = fields.overlay(after, message.get("old"), "$.old")
            changes = [(-1, fields.pick(before)), (1, fields.pick(after))]
        else:
            known = "insert, update, delete, the types of a bootstrap and of DDL"
            problem = "is missing" if node is None else f"{describe(node)} is unknown"
            return rejection(f"the type {problem}; known are {known}", "$.type")
        return Changes(changes, _to_milliseconds(parse_time_ms(message.get("ts"))))

    def _fast_decode(self) -> Decode:
        fields = self._fields
        envelope = msgspec.defstruct(
            "Envelope",
            [
                *self._tables.fields(),
                ("type", str, ""),
                ("data", fields.make_struct("Data", partial=False), UNSET),
                ("old", fields.make_struct("Old", partial=True) | None, None),
                ("ts", _Seconds | None, None),
            ],
            gc=False,
        )
        return self._generate(
            msgspec.json.Decoder(envelope).decode,
            self._lines(),
            fields.names() | {"weights": WEIGHTS},
            unexpected=(*UNEXPECTED, AttributeError),  # a missing row
        )

    def _lines(self) -> Iterator[str]:
        fields = self._fields
        row, before = fields.tuple_code("after"), fields.tuple_code("before")
        yield from self._tables.lines("message")
        yield "kind = message.type"
        yield "es = message.ts"
        yield f"if es is not None: es *= {_SECOND_MS}"
        yield "row = message.data"
        yield "if kind in weights:"
        yield from indent(4, fields.read_lines("row", "after"))
        yield f"    return Changes([(weights[kind], {row})], es)"
        yield "if kind == 'update':"
        yield "    old = message.old"
        yield from indent(4, fields.read_lines("row", "after"))
        # If no column is read, no other line notices a missing `old`.
        yield "    if old is None: return explain(value)"
        yield from indent(4, fields.overlay_lines("old", "before", "after"))
        yield f"    return Changes([(-1, {before}), (1, {row})], es)"
        yield "return explain(value)"


def _to_milliseconds(seconds: int | None) -> int | None:
    """Convert the time of a message, which Maxwell writes in seconds."""
    if seconds is None or abs(seconds) > _SECONDS_MAX:
        return None
    return seconds * _SECOND_MS
