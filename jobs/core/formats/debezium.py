"""debezium-json messages as signed rows, with the schema in the message or without.

    {"before": .., "after": .., "op": "u", "source": {..}, "ts_ms": ..}      -U before, +U after
    {"schema": {..}, "payload": {"before": .., "after": .., "op": "c", ..}}  +I after

    message ── schema? ── encodings of the columns ──► one generated reader for each such set
                 └ no: by the connector's modes and the declared types

c, r (snapshot) and u, d are rows; t (TRUNCATE) goes to quarantine, m (a message) is skipped. An
update or delete without the row before it cannot be retracted: it is refused, unless the job
keeps the last image of each row itself. `decode` reads normal messages, `explain` all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from jobs.core.formats.debezium_fields import (
    PLAIN_MODES,
    UNAVAILABLE,
    DebeziumFields,
    Encoding,
    Modes,
    encodings_of,
    encodings_said,
)
from jobs.core.formats.row_fields import (
    HEAD_LINES,
    TOMBSTONE,
    UNEXPECTED,
    Decode,
    Int64,
    RefusedError,
    compiled,
    indented,
    milliseconds,
    rejected,
)
from jobs.core.formats.table_filter import TableFilter
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, Decoded, Filtered, Rejected, Row, Skipped
from jobs.core.values.json_text import UnreadableError, acceptable, read, shown
from schemas import limits
from schemas.types.sql_types import Kind

MESSAGE = Skipped("message of the database")
INSERTS = ("c", "r")

_KEYS = {"database": "db", "table": "table"}  # of the object `source`
_UNEXPECTED = (*UNEXPECTED, AttributeError)  # of an image that is not there

_NO_IMAGE = "raise ValueError('no image')"

_Apply = Callable[[object], Decoded]


class DebeziumDecoder:
    """Decodes debezium-json for one source; built once, then called for every message."""

    def __init__(
        self,
        columns: tuple[Column, ...],
        used: tuple[Column, ...],
        database: str | None = None,
        table: str | None = None,
        modes: Modes = PLAIN_MODES,
        missing_is_null: bool = False,
        *,
        last_images: bool = False,  # the job knows the row before an update
        bytes_max: int = limits.MESSAGE_BYTES_MAX,
    ) -> None:
        self._made_of = (columns, used, database, table, modes, missing_is_null)
        self._last_images = last_images
        self._bytes_max = bytes_max
        self._columns, self._used, self._modes = columns, used, modes
        self._missing_is_null = missing_is_null
        self._plain = encodings_of(columns, modes)
        self._known: dict[tuple[Encoding, ...], DebeziumFields] = {}
        self._filter = TableFilter(database, table, _KEYS)
        source = msgspec.defstruct("Filtered", self._filter.fields(), gc=False)
        payload = msgspec.defstruct("Inner", [("source", source | None, None)], gc=False)
        outer = [("source", source | None, None), ("payload", payload | None, None)]
        header: Any = msgspec.json.Decoder(msgspec.defstruct("Header", outer))
        self._read_header = header.decode
        nameable = self._fields(self._plain).nameable
        self.decode: Decode = self._generated() if nameable else self.explain

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (self._made_of, self._last_images, self._bytes_max)

    def _fields(self, encodings: tuple[Encoding, ...]) -> DebeziumFields:
        if encodings not in self._known:
            if len(self._known) >= limits.MESSAGE_SCHEMAS_MAX:
                self._known.clear()
            self._known[encodings] = DebeziumFields(
                self._columns, self._used, encodings, missing_is_null=self._missing_is_null
            )
        return self._known[encodings]

    def _said(self, schema: object) -> tuple[Encoding, ...]:
        return encodings_said(schema, self._columns, self._modes) or self._plain

    # --- the exact way ----------------------------------------------------------------------

    def explain(self, value: bytes | None) -> Decoded:
        """Decode any message; slower than `decode`, with the same result."""
        if not value:
            return TOMBSTONE
        try:
            root = read(value, self._bytes_max)
        except UnreadableError as error:
            return rejected(str(error))
        encodings, path = self._plain, "$"
        if isinstance(root, dict) and "payload" in root:
            encodings = self._said(root.get("schema"))
            root, path = root["payload"], "$.payload"
        if not isinstance(root, dict):
            return rejected(f"{shown(root)} is not a debezium-json object", path)
        source = root.get("source")
        stamps = source if isinstance(source, dict) else {}
        refusal = self._filter.refusal(stamps, f"{path}.source")
        if refusal is not None:
            return refusal
        try:
            outcome = self._changes(root, self._fields(encodings), path)
        except RefusedError as error:
            return error.decoded
        if isinstance(outcome, list):
            times = milliseconds(stamps.get("ts_ms")), milliseconds(root.get("ts_ms"))
            return Changes(outcome, *times)
        return outcome

    def _changes(
        self, root: dict[str, object], fields: DebeziumFields, path: str
    ) -> list[tuple[int, Row]] | Skipped | Rejected:
        op = root.get("op")
        before, after = f"{path}.before", f"{path}.after"
        if op in INSERTS:
            return [(1, fields.pick(fields.row(root.get("after"), after)))]
        if op == "u":
            new = fields.pick(fields.row(root.get("after"), after))
            if root.get("before") is None and self._last_images:
                return [(1, new)]
            old = fields.pick(fields.row(self._before(root, before, "an update"), before))
            return [(-1, old), (1, new)]
        if op == "d":
            node = self._before(root, before, "a delete")
            return [(-1, fields.pick(fields.row(node, before)))]
        if op == "t":
            reason = "TRUNCATE removes rows that it does not name; it cannot become retractions"
            return rejected(reason, f"{path}.op")
        if op == "m":
            return MESSAGE
        problem = "is missing" if op is None else f"{shown(op)} is unknown"
        return rejected(f"the op {problem}; known are c, r, u, d, t and m", f"{path}.op")

    def _before(self, root: dict[str, object], path: str, what: str) -> object:
        node = root.get("before")
        if node is None:
            reason = (
                f"{what} without the row before it cannot be retracted; the table needs REPLICA "
                "IDENTITY FULL (PostgreSQL) or full row images (MySQL), or the job dedupe: pk"
            )
            raise RefusedError(rejected(reason, path))
        return node

    # --- the fast way -----------------------------------------------------------------------

    def _generated(self) -> Decode:
        row = self._fields(self._plain).struct("Row", partial=False)
        stamps = [*self._filter.fields(), ("ts_ms", Int64 | None, None)]
        source = msgspec.defstruct("Source", stamps, gc=False)
        members: list[tuple[str, object, object]] = [
            ("op", str, ""),
            ("before", row | None, None),
            ("after", row | None, None),
            ("source", source | None, None),
            ("ts_ms", Int64 | None, None),
        ]
        payload = msgspec.defstruct("Payload", members, gc=False)
        outer = [("payload", payload | UnsetType, UNSET), ("schema", Raw | UnsetType, UNSET)]
        envelope = msgspec.defstruct("Envelope", [*members, *outer], gc=False)
        texts = any(column.type.kind is Kind.STRING for column in self._columns)
        names: dict[str, object] = {
            "read_envelope": msgspec.json.Decoder(envelope).decode,
            "acceptable": acceptable,
            "bytes_max": self._bytes_max,
            "foreign": self._foreign,
            "explain": self.explain,
            "tombstone": TOMBSTONE,
            "unexpected": _UNEXPECTED,
            "UNSET": UNSET,
            "plain": self._reader(self._plain),
            "by_schema": _BySchema(self._reader_said),
            "unavailable": UNAVAILABLE.encode(),
        }
        decode: Decode = compiled(self._lines(texts=texts), names)
        return decode

    def _lines(self, *, texts: bool) -> Iterator[str]:
        yield from HEAD_LINES
        if texts:  # nothing converts a text, so nothing else would see it
            yield "    if unavailable in value: return explain(value)"
        yield from (
            "    try:",
            "        message = read_envelope(value)",
            "        payload = message.payload",
            "        if payload is UNSET: return plain(message)",
            "        schema = message.schema",
            "        if schema is UNSET: return plain(payload)",
            "        return by_schema[bytes(schema)](payload)",
            "    except unexpected:",
            "        return foreign(value) or explain(value)",
        )

    def _reader_said(self, schema: bytes) -> _Apply:
        return self._reader(self._said(read(schema, len(schema))))

    def _reader(self, encodings: tuple[Encoding, ...]) -> _Apply:
        """The part behind the envelope, for columns in these encodings."""
        fields = self._fields(encodings)
        names = fields.names() | self._filter.names() | {"Changes": Changes}
        reader: _Apply = compiled(self._reader_lines(fields), names)
        return reader

    def _reader_lines(self, fields: DebeziumFields) -> Iterator[str]:
        yield from ("def decode(message):", "    source = message.source")
        yield from indented(4, self._filter.lines("source"))
        yield from (
            "    es = None if source is None else source.ts_ms",
            "    ts = message.ts_ms",
            "    op = message.op",
            "    row = message.before if op == 'd' else message.after",
            # With no column to look at, nothing else would notice that there is no row.
            f"    if row is None: {_NO_IMAGE}",
        )
        yield from indented(4, fields.read_lines("row", "value"))
        row, before = fields.tuple_code("value"), fields.tuple_code("before")
        yield from (
            f"    if op in {INSERTS!r}: return Changes([(1, {row})], es, ts)",
            f"    if op == 'd': return Changes([(-1, {row})], es, ts)",
            "    if op != 'u': raise ValueError('op')",
            "    old = message.before",
        )
        alone = f"return Changes([(1, {row})], es, ts)" if self._last_images else _NO_IMAGE
        yield f"    if old is None: {alone}"
        yield from indented(4, fields.read_lines("old", "before"))
        yield f"    return Changes([(-1, {before}), (1, {row})], es, ts)"

    def _foreign(self, value: bytes) -> Filtered | None:
        if not self._filter:
            return None
        try:
            message = self._read_header(value)
        except UNEXPECTED:
            return None
        node = message.source if message.payload is None else message.payload.source
        return self._filter.foreign(lambda _: node, value)


class _BySchema(dict[bytes, _Apply]):
    """A reader for each schema, by the schema's own bytes: they repeat in every message."""

    def __init__(self, make: Callable[[bytes], _Apply]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, schema: bytes) -> _Apply:
        if len(self) >= limits.MESSAGE_SCHEMAS_MAX:
            self.clear()
        self[schema] = made = self._make(schema)
        return made


def _rebuilt(made_of: tuple[object, ...], last_images: bool, bytes_max: int) -> DebeziumDecoder:
    """A decoder on the other side of a pickle: generated code does not travel."""
    return DebeziumDecoder(*made_of, last_images=last_images, bytes_max=bytes_max)  # type: ignore[arg-type]
