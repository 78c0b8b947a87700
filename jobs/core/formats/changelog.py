"""Decode changelog-json, the format that retally publishes, so that jobs can be chained.

    {"op": "-U", "row": {"name": "a", "n": 3}, "epoch": 7, "seq": 3}  ──►  (-1, ("a", 3))

One record is one row; the -U and the +U of an update are two records. A row of a window has a
`time`, which becomes `es`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from jobs.core.formats.frame import DecoderFrame
from jobs.core.formats.row_fields import (
    UNEXPECTED,
    Decode,
    Int64,
    RowFields,
    parse_time_ms,
    rejection,
)
from jobs.core.values.change import Changes, Decoded, Op
from jobs.core.values.json_text import describe
from jobs.core.values.json_values import parser

WEIGHTS = {str(op): op.weight for op in Op}


class ChangelogDecoder(DecoderFrame):
    """Decodes changelog-json for one source."""

    def _make_fields(self) -> RowFields:
        return RowFields(
            self._columns, self._used, parser, missing_is_null=self._rules.missing_is_null
        )

    def _decode_json(self, root: object) -> Decoded:
        message = self._require_object(root)
        op = message.get("op")
        if not isinstance(op, str) or op not in WEIGHTS:
            return rejection(f"the op is {describe(op)}; known are {', '.join(WEIGHTS)}", "$.op")
        row = self._fields.pick(self._fields.parse_row(message.get("row"), "$.row"))
        return Changes([(WEIGHTS[op], row)], parse_time_ms(message.get("time")))

    def _fast_decode(self) -> Decode:
        row = self._fields.make_struct("Row", partial=False)
        fields: list[Any] = [("op", str), ("row", row), ("time", Int64 | None, None)]
        envelope = msgspec.defstruct("Envelope", fields, gc=False)
        return self._generate(
            msgspec.json.Decoder(envelope).decode,
            self._lines(),
            self._fields.names() | {"weights": WEIGHTS},
            unexpected=(*UNEXPECTED, KeyError),
        )

    def _lines(self) -> Iterator[str]:
        yield "weight = weights[message.op]"
        yield "row = message.row"
        yield from self._fields.read_lines("row", "value")
        yield f"return Changes([(weight, {self._fields.tuple_code('value')})], message.time)"
