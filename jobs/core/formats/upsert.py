"""upsert-json records as signed rows: the value is the last image, the key says of which row.

    key {"name": "a"}   value {"name": "a", "n": 3}   ──►  + ("a", 3)
    key {"name": "a"}   value null                    ──►  - ("a", NULL)    a tombstone

There is no image before, so only a job that keeps the last image of each row (`dedupe: pk`) can
read it: an accumulate takes the place of the image that is there, and of a retraction only the
primary key counts. What we publish as upsert-json is read back exactly.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from jobs.core.formats.row_fields import (
    UNEXPECTED,
    KeyedDecode,
    RefusedError,
    RowFields,
    compiled,
    indented,
    rejected,
)
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, Decoded, Row
from jobs.core.values.json_text import UnreadableError, acceptable, read, shown
from jobs.core.values.json_values import parser
from schemas import limits


class UpsertDecoder:
    """Decodes upsert-json for one source; built once, then called for every record."""

    def __init__(
        self,
        columns: tuple[Column, ...],
        used: tuple[Column, ...],
        primary_key: tuple[str, ...],
        missing_is_null: bool = False,
        *,
        bytes_max: int = limits.MESSAGE_BYTES_MAX,
    ) -> None:
        self._made_of = (columns, used, primary_key, missing_is_null)
        self._bytes_max = bytes_max
        self._fields = RowFields(columns, used, parser, missing_is_null=missing_is_null)
        key = tuple(column for column in columns if column.name in primary_key)
        self._key = RowFields(key, key, parser, missing_is_null=False)
        self._key_places = {column.name: place for place, column in enumerate(key)}
        self._used = used
        self.decode_keyed = self._generated() if self._fields.nameable else self.explain_keyed

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (self._made_of, self._bytes_max)

    def decode(self, value: bytes | None) -> Decoded:
        """A record without its key: enough for an image, not for a tombstone."""
        return self.decode_keyed(value, None)

    def explain(self, value: bytes | None) -> Decoded:
        return self.explain_keyed(value, None)

    def explain_keyed(self, value: bytes | None, key: bytes | None) -> Decoded:
        """Decode any record; slower than `decode_keyed`, with the same result."""
        try:
            if not value:
                return Changes([(-1, self._gone(key))])
            root = read(value, self._bytes_max)
            return Changes([(1, self._fields.pick(self._fields.row(root, "$")))])
        except UnreadableError as error:
            return rejected(str(error))
        except RefusedError as error:
            return error.decoded

    def _gone(self, key: bytes | None) -> Row:
        """Of a row that is gone only the primary key is known."""
        names = ", ".join(self._key_places)
        if not key:
            raise RefusedError(
                rejected(f"a tombstone without a key: which row is gone? It names {names}", "key")
            )
        try:
            node = read(key, self._bytes_max)
        except UnreadableError as error:
            raise RefusedError(rejected(f"the key is {error}", "key")) from None
        if not isinstance(node, dict):
            what = f"the key is {shown(node)}; a JSON object of {names} belongs there"
            raise RefusedError(rejected(what, "key"))
        missing = [name for name in self._key_places if name not in node]
        if missing:
            what = f"the key of a tombstone has no {missing[0]}, which is of the primary key"
            raise RefusedError(rejected(what, "key"))
        values = self._key.row(node, "key")
        places = self._key_places
        return tuple(
            values[places[column.name]] if column.name in places else None for column in self._used
        )

    def _generated(self) -> KeyedDecode:
        row = self._fields.struct("Row", partial=False)
        names = self._fields.names() | {
            "read_row": msgspec.json.Decoder(row).decode,
            "acceptable": acceptable,
            "bytes_max": self._bytes_max,
            "explain": self.explain_keyed,
            "Changes": Changes,
            "unexpected": UNEXPECTED,
        }
        return compiled(self._lines(), names)

    def _lines(self) -> Iterator[str]:
        yield from (
            "def decode(value, key):",
            "    if not value:",
            "        return explain(value, key)",
            f"    if len(value) > {limits.SHORT_MESSAGE_BYTES_MAX} or not value.isascii():",
            "        if not acceptable(value, bytes_max):",
            "            return explain(value, key)",
            "    try:",
            "        row = read_row(value)",
        )
        yield from indented(8, self._fields.read_lines("row", "value"))
        yield from (
            f"        return Changes([(1, {self._fields.tuple_code('value')})])",
            "    except unexpected:",
            "        return explain(value, key)",
        )


def _rebuilt(made_of: tuple[object, ...], bytes_max: int) -> UpsertDecoder:
    """A decoder on the other side of a pickle: generated code does not travel."""
    return UpsertDecoder(*made_of, bytes_max=bytes_max)  # type: ignore[arg-type]
