"""changelog-json messages, as retally publishes them, as signed rows: so that jobs chain.

    {"op": "-U", "row": {"name": "a", "n": 3}, "epoch": 7, "seq": 3}  ──►  (-1, ("a", 3))

One record is one row, and one of a window tells its time, which is read as `es`; the -U and the +U
of an update are two records. Built like the canal decoder: `decode` for normal messages, `explain`
for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from jobs.core.formats.row_fields import (
    HEAD_LINES,
    TOMBSTONE,
    UNEXPECTED,
    Decode,
    Int64,
    RefusedError,
    RowFields,
    compiled,
    milliseconds,
    rejected,
)
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, Decoded, Op
from jobs.core.values.json_text import UnreadableError, acceptable, read, shown
from jobs.core.values.json_values import parser
from schemas import limits

WEIGHTS = {str(op): op.weight for op in Op}


class ChangelogDecoder:
    """Decodes changelog-json for one source; built once, then called for every message."""

    def __init__(
        self,
        columns: tuple[Column, ...],
        used: tuple[Column, ...],
        missing_is_null: bool = False,
        *,
        bytes_max: int = limits.MESSAGE_BYTES_MAX,
    ) -> None:
        self._made_of = (columns, used, missing_is_null)
        self._bytes_max = bytes_max
        self._fields = RowFields(columns, used, parser, missing_is_null=missing_is_null)
        self.decode = self._generated() if self._fields.nameable else self.explain

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (self._made_of, self._bytes_max)

    def explain(self, value: bytes | None) -> Decoded:
        """Decode any message; slower than `decode`, with the same result."""
        if not value:
            return TOMBSTONE
        try:
            root = read(value, self._bytes_max)
        except UnreadableError as error:
            return rejected(str(error))
        if not isinstance(root, dict):
            return rejected(f"{shown(root)} is not a changelog-json object")
        op = root.get("op")
        if not isinstance(op, str) or op not in WEIGHTS:
            return rejected(f"the op is {shown(op)}; known are {', '.join(WEIGHTS)}", "$.op")
        try:
            row = self._fields.pick(self._fields.row(root.get("row"), "$.row"))
        except RefusedError as error:
            return error.decoded
        return Changes([(WEIGHTS[op], row)], milliseconds(root.get("time")))

    def _generated(self) -> Decode:
        row = self._fields.struct("Row", partial=False)
        fields: list[Any] = [("op", str), ("row", row), ("time", Int64 | None, None)]
        envelope = msgspec.defstruct("Envelope", fields, gc=False)
        names = self._fields.names() | {
            "read_envelope": msgspec.json.Decoder(envelope).decode,
            "acceptable": acceptable,
            "bytes_max": self._bytes_max,
            "explain": self.explain,
            "weights": WEIGHTS,
            "Changes": Changes,
            "tombstone": TOMBSTONE,
            "unexpected": (*UNEXPECTED, KeyError),
        }
        return compiled(self._lines(), names)

    def _lines(self) -> Iterator[str]:
        yield from (
            *HEAD_LINES,
            "    try:",
            "        message = read_envelope(value)",
            "        weight = weights[message.op]",
            "        row = message.row",
        )
        yield from ("        " + line for line in self._fields.read_lines("row", "value"))
        yield from (
            f"        return Changes([(weight, {self._fields.tuple_code('value')})], message.time)",
            "    except unexpected:",
            "        return explain(value)",
        )


def _rebuilt(made_of: tuple[object, ...], bytes_max: int) -> ChangelogDecoder:
    """A decoder on the other side of a pickle: generated code does not travel."""
    return ChangelogDecoder(*made_of, bytes_max=bytes_max)  # type: ignore[arg-type]
