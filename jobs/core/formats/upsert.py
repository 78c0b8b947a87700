"""Decode upsert-json records: the value is the last image of a row, the key is its key.

    key {"name": "a"}   value {"name": "a", "n": 3}   ──►  + ("a", 3)
    key {"name": "a"}   value null                    ──►  - ("a", NULL)    a tombstone

There is no old image, so only a job with `dedupe: pk` can read this format, because it keeps the
last image of each row. A + replaces this image; of a - only the primary key counts. The decoder
reads back exactly what retally publishes as upsert-json.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from jobs.core.formats.frame import DecoderFrame
from jobs.core.formats.row_fields import KeyedDecode, RefusedError, RowFields, rejection
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, Decoded
from jobs.core.values.json_text import UnreadableError, describe, read_json
from jobs.core.values.json_values import parser
from schemas import limits


class UpsertDecoder(DecoderFrame):
    """Decodes upsert-json for one source; a tombstone needs the key of its record as well."""

    format = "upsert"
    parameters = "value, key"

    def __init__(
        self,
        columns: tuple[Column, ...],
        used: tuple[Column, ...],
        primary_key: tuple[str, ...],
        missing_is_null: bool = False,
        *,
        bytes_max: int = limits.MESSAGE_BYTES_MAX,
    ) -> None:
        super().__init__(None, bytes_max)
        self._fields = RowFields(columns, used, parser, missing_is_null=missing_is_null)
        key = tuple(column for column in columns if column.name in primary_key)
        self._key = RowFields(key, key, parser, missing_is_null=False)
        self._key_indexes = {column.name: index for index, column in enumerate(key)}
        self._used = used
        fast = self._fields.nameable
        self.decode_keyed: KeyedDecode = self._fast_decode() if fast else self.explain_keyed

    def decode(self, value: bytes | None) -> Decoded:
        """Decode a record without its key, which suffices for all but tombstones."""
        return self.decode_keyed(value, None)

    def explain_keyed(self, value: bytes | None, key: bytes | None) -> Decoded:
        """Decode any record; slower than `decode_keyed`, with the same result."""
        return self.explain(value, key)

    def _decode_json(self, root: object) -> Decoded:
        return Changes([(1, self._fields.pick(self._fields.parse_row(root, "$")))])

    def _decode_tombstone(self, key: bytes | None) -> Decoded:
        """Return the retraction of a deleted row, of which only the primary key is known."""
        names = ", ".join(self._key_indexes)
        if not key:
            raise _refuse_key(f"a tombstone has no key; its key must name {names}")
        try:
            node = read_json(key, self._bytes_max)
        except UnreadableError as error:
            raise _refuse_key(f"the key is {error}") from None
        if not isinstance(node, dict):
            raise _refuse_key(f"the key is {describe(node)}; it must be a JSON object of {names}")
        missing = [name for name in self._key_indexes if name not in node]
        if missing:
            raise _refuse_key(f"the key of a tombstone lacks {missing[0]} of the primary key")
        values = self._key.parse_row(node, "key")
        indexes = (self._key_indexes.get(column.name) for column in self._used)
        return Changes([(-1, tuple(None if i is None else values[i] for i in indexes))])

    def _fast_decode(self) -> KeyedDecode:
        row = self._fields.make_struct("Row", partial=False)
        decode: KeyedDecode = self._generate(
            msgspec.json.Decoder(row).decode, self._lines(), self._fields.names()
        )
        return decode

    def _lines(self) -> Iterator[str]:
        yield from self._fields.read_lines("message", "value")
        yield f"return Changes([(1, {self._fields.tuple_code('value')})])"


def _refuse_key(reason: str) -> RefusedError:
    return RefusedError(rejection(reason, "key"))
