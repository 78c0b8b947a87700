"""Decode debezium-json messages, with or without a schema in the message.

    {"before": .., "after": .., "op": "u", "source": {..}, "ts_ms": ..}      -U before, +U after
    {"schema": {..}, "payload": {"before": .., "after": .., "op": "c", ..}}  +I after

    message ── schema? ── encodings of the columns ──► a generated reader for each such set
                 └ no: by the connector's modes and the declared types

c, r (snapshot), u and d are rows; t is a TRUNCATE (`on_truncate`), m (a message) is skipped. An
update or delete without the row before it cannot be retracted. It is refused, unless the job keeps
the last image of each row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from jobs.core.formats.debezium_fields import (
    UNAVAILABLE,
    UNAVAILABLE_BASE64,
    DebeziumFields,
    Encoding,
    default_encodings,
    schema_encodings,
)
from jobs.core.formats.frame import DecoderFrame
from jobs.core.formats.row_fields import (
    UNEXPECTED,
    Decode,
    Int64,
    RefusedError,
    compile_decoder,
    indent,
    name_truncate,
    parse_time_ms,
    rejection,
)
from jobs.core.kernels import codes
from jobs.core.values.change import Changes, Decoded, Rejected, Row, Skipped, Truncated
from jobs.core.values.json_text import describe, read_json
from schemas import limits
from schemas.types.sql_types import Kind

if TYPE_CHECKING:
    from jobs.core.formats.message_scanner import MessageScanner

MESSAGE = Skipped("message of the database")
INSERTS = ("c", "r")

_KEYS = {"database": "db", "table": "table"}  # in the object `source`
_NO_IMAGE = "raise ValueError('no image')"

_Reader = Callable[[object], Decoded]


class DebeziumDecoder(DecoderFrame):
    """Decodes debezium-json for one source."""

    table_keys = _KEYS

    @cached_property
    def _defaults(self) -> tuple[Encoding, ...]:
        return default_encodings(self._columns, self._rules.modes)

    @cached_property
    def _decode_header(self) -> Callable[[bytes], Any]:
        source = msgspec.defstruct("Filtered", self._tables.fields(), gc=False)
        payload = msgspec.defstruct("Inner", [("source", source | None, None)], gc=False)
        outer = [("source", source | None, None), ("payload", payload | None, None)]
        header: Any = msgspec.json.Decoder(msgspec.defstruct("Header", outer))
        decode: Callable[[bytes], Any] = header.decode
        return decode

    def _make_fields(self) -> DebeziumFields:
        return self._fields_of(self._defaults)

    @cached_property
    def _fields_of(self) -> Callable[[tuple[Encoding, ...]], DebeziumFields]:
        missing_is_null = self._rules.missing_is_null
        make = partial(DebeziumFields, self._columns, self._used, missing_is_null=missing_is_null)
        return lru_cache(limits.MESSAGE_SCHEMAS_MAX)(make)

    def _encodings(self, schema: object) -> tuple[Encoding, ...]:
        return schema_encodings(schema, self._columns, self._rules.modes) or self._defaults

    def make_scanner(self) -> MessageScanner | None:
        """Return a scanner of messages without a schema; None if it does not know a type."""
        return self._make_scanner(
            codes.DEBEZIUM,
            self._fields,
            names=(_KEYS["database"], _KEYS["table"]),
            encodings=self._defaults,
            last_images=self._rules.last_images,
        )

    # --- the exact path ---------------------------------------------------------------------

    def _decode_json(self, root: object) -> Decoded:
        encodings, path = self._defaults, "$"
        if isinstance(root, dict) and "payload" in root:
            encodings = self._encodings(root.get("schema"))
            root, path = root["payload"], "$.payload"
        message = self._require_object(root, path)
        return self._decode_payload(message, self._fields_of(encodings), path)

    def _decode_payload(
        self, message: dict[str, object], fields: DebeziumFields, path: str
    ) -> Decoded:
        source = message.get("source")
        stamps = source if isinstance(source, dict) else {}
        self._tables.check(stamps, f"{path}.source")
        outcome = self._changes(message, fields, path)
        times = parse_time_ms(stamps.get("ts_ms")), parse_time_ms(message.get("ts_ms"))
        if isinstance(outcome, list):
            return Changes(outcome, *times)
        if isinstance(outcome, Truncated):
            return Truncated(outcome.statement, outcome.path, *times)
        return outcome

    def _changes(
        self, message: dict[str, object], fields: DebeziumFields, path: str
    ) -> list[tuple[int, Row]] | Skipped | Rejected | Truncated:
        op = message.get("op")
        before, after = f"{path}.before", f"{path}.after"
        if op in INSERTS:
            return [(1, fields.pick(fields.parse_row(message.get("after"), after)))]
        if op == "u":
            new = fields.pick(fields.parse_row(message.get("after"), after))
            if message.get("before") is None and self._rules.last_images:
                return [(1, new)]
            node = _require_before(message, before, "an update")
            return [(-1, fields.pick(fields.parse_row(node, before))), (1, new)]
        if op == "d":
            node = _require_before(message, before, "a delete")
            return [(-1, fields.pick(fields.parse_row(node, before)))]
        if op == "t":
            source = message.get("source")
            names = source if isinstance(source, dict) else {}
            return Truncated(name_truncate(names.get("db"), names.get("table")), f"{path}.op")
        if op == "m":
            return MESSAGE
        problem = "is missing" if op is None else f"{describe(op)} is unknown"
        return rejection(f"the op {problem}; known are c, r, u, d, t and m", f"{path}.op")

    # --- the fast path ----------------------------------------------------------------------

    def _fast_decode(self) -> Decode:
        row = self._fields.make_struct("Row", partial=False)
        stamps = [*self._tables.fields(), ("ts_ms", Int64 | None, None)]
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
        # Nothing converts a STRING, so only the guard notices a value that was not sent.
        has_texts = any(column.type.kind is Kind.STRING for column in self._columns)
        unavailable = "unavailable in value or unavailable_base64 in value"
        guard = [f"if {unavailable}: return explain(value)"] if has_texts else []
        lines = (
            "payload = message.payload",
            "if payload is UNSET: return read_default(message)",
            "schema = message.schema",
            "if schema is UNSET: return read_default(payload)",
            "return reader_of(bytes(schema))(payload)",
        )
        names: dict[str, object] = {
            "UNSET": UNSET,
            "read_default": self._reader(self._defaults),
            "reader_of": lru_cache(limits.MESSAGE_SCHEMAS_MAX)(self._reader_of_schema),
            "unavailable": UNAVAILABLE.encode(),
            "unavailable_base64": UNAVAILABLE_BASE64.encode(),
        }
        unexpected = (*UNEXPECTED, AttributeError)  # AttributeError: a missing image
        read_envelope = msgspec.json.Decoder(envelope).decode
        return self._generate(read_envelope, lines, names, guard=guard, unexpected=unexpected)

    def _reader_of_schema(self, schema: bytes) -> _Reader:
        return self._reader(self._encodings(read_json(schema, len(schema))))

    def _reader(self, encodings: tuple[Encoding, ...]) -> _Reader:
        """Return a function from the payload to its changes, for columns in these encodings."""
        fields = self._fields_of(encodings)
        names = fields.names() | self._tables.names() | {"Changes": Changes}
        reader: _Reader = compile_decoder(self._reader_lines(fields), names)
        return reader

    def _reader_lines(self, fields: DebeziumFields) -> Iterator[str]:
        yield from ("def decode(message):", "    source = message.source")
        yield from indent(4, self._tables.lines("source"))
        yield from (
            "    es = None if source is None else source.ts_ms",
            "    ts = message.ts_ms",
            "    op = message.op",
            "    row = message.before if op == 'd' else message.after",
            # If no column is read, no other line notices a missing row.
            f"    if row is None: {_NO_IMAGE}",
        )
        yield from indent(4, fields.read_lines("row", "value"))
        row, before = fields.tuple_code("value"), fields.tuple_code("before")
        yield from (
            f"    if op in {INSERTS!r}: return Changes([(1, {row})], es, ts)",
            f"    if op == 'd': return Changes([(-1, {row})], es, ts)",
            "    if op != 'u': raise ValueError('op')",
            "    old = message.before",
        )
        without_old = (
            f"return Changes([(1, {row})], es, ts)" if self._rules.last_images else _NO_IMAGE
        )
        yield f"    if old is None: {without_old}"
        yield from indent(4, fields.read_lines("old", "before"))
        yield f"    return Changes([(-1, {before}), (1, {row})], es, ts)"

    def _read_header(self, value: bytes) -> object:
        message = self._decode_header(value)
        return message.source if message.payload is None else message.payload.source


def _require_before(message: dict[str, object], path: str, what: str) -> object:
    node = message.get("before")
    if node is None:
        reason = (
            f"{what} without the row before it cannot be retracted; the table needs REPLICA "
            "IDENTITY FULL (PostgreSQL) or full row images (MySQL), or the job dedupe: pk"
        )
        raise RefusedError(rejection(reason, path))
    return node
