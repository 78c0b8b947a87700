"""Decode upsert-json records: the value is the last image of a row, the key is its key.

    key {"name": "a"}   value {"name": "a", "n": 3}   ──►  + ("a", 3)
    key {"name": "a"}   value null                    ──►  - ("a", NULL)    a tombstone

There is no old image, so only a job with `dedupe: pk` can read this format, because it keeps the
last image of each row. A + replaces this image; of a - only the primary key counts. The decoder
reads back exactly what retally publishes as upsert-json.
"""

from __future__ import annotations

from functools import cached_property

from jobs.core.formats.frame import DecoderFrame
from jobs.core.formats.row_fields import RefusedError, RowFields, rejection
from jobs.core.values.change import Changes, Decoded
from jobs.core.values.json_text import UnreadableError, describe, read_json
from jobs.core.values.json_values import parser


class UpsertDecoder(DecoderFrame):
    """Decodes upsert-json for one source; a tombstone needs the key of its record as well."""

    def _make_fields(self) -> RowFields:
        missing_is_null = self._rules.missing_is_null
        return RowFields(self._columns, self._used, parser, missing_is_null=missing_is_null)

    @cached_property
    def _key(self) -> RowFields:
        key = tuple(each for each in self._columns if each.name in self._rules.primary_key)
        return RowFields(key, key, parser, missing_is_null=False)

    def _decode_json(self, root: object) -> Decoded:
        return Changes([(1, self._fields.pick(self._fields.parse_row(root, "$")))])

    def _decode_tombstone(self, key: bytes | None) -> Decoded:
        """Return the retraction of a deleted row, of which only the primary key is known."""
        indexes = {column.name: index for index, column in enumerate(self._key.columns)}
        names = ", ".join(indexes)
        if not key:
            raise _refuse_key(f"a tombstone has no key; its key must name {names}")
        try:
            node = read_json(key, self._bytes_max)
        except UnreadableError as error:
            raise _refuse_key(f"the key is {error}") from None
        if not isinstance(node, dict):
            raise _refuse_key(f"the key is {describe(node)}; it must be a JSON object of {names}")
        missing = [name for name in indexes if name not in node]
        if missing:
            raise _refuse_key(f"the key of a tombstone lacks {missing[0]} of the primary key")
        values = self._key.parse_row(node, "key")
        found = (indexes.get(column.name) for column in self._used)
        return Changes([(-1, tuple(None if i is None else values[i] for i in found))])


def _refuse_key(reason: str) -> RefusedError:
    return RefusedError(rejection(reason, "key"))
