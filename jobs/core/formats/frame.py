"""The frame of all decoders: bytes of a message to its changes, once fast and once exactly.

    bytes ── size, encoding, depth ── JSON ── database, table ── type ── columns ──► Changes
                     │                  │           │             │         │
                  Rejected           Rejected    Filtered      Skipped   Rejected, ColumnGone

A message counts as a whole or not at all. This path exists twice. `decode` is generated for the
columns and accepts only what a normal message looks like; it passes every other message to
`explain`, which decodes all messages exactly and reports what is wrong and where.

A format inherits from the frame and adds two things: `_decode_json` for the exact path, and lines
of code between the envelope and the changes for the generated one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from jobs.core.formats.debezium_fields import DEFAULT_MODES, Modes
from jobs.core.formats.mysql_values import BinaryForm
from jobs.core.formats.row_fields import (
    TOMBSTONE,
    UNEXPECTED,
    Decode,
    RefusedError,
    RowFields,
    compile_decoder,
    indent,
    rejection,
)
from jobs.core.formats.table_filter import FILTERED, OtherTableError, TableFilter
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, Decoded, Filtered
from jobs.core.values.json_text import (
    UnreadableError,
    describe,
    is_acceptable,
    read_json,
    skip_header,
)
from jobs.core.values.json_values import TimestampFormat
from schemas.limits import MESSAGE_BYTES_MAX, SHORT_MESSAGE_BYTES_MAX
from schemas.spec.event_formats import CsvEvents
from schemas.spec.source_rows import OnTruncate

DEFAULT_CSV = CsvEvents()


@dataclass(frozen=True, slots=True)
class FormatRules:
    """The keys of a job spec that concern the messages of its source."""

    format: str
    database: str | None = None
    table: str | None = None
    timestamp_format: TimestampFormat = "sql"
    missing_is_null: bool = False
    modes: Modes = DEFAULT_MODES
    primary_key: tuple[str, ...] = ()
    last_images: bool = False  # the job keeps the last image of each row
    paths: tuple[tuple[str, str], ...] = ()  # of json: column and path
    csv: CsvEvents = DEFAULT_CSV
    binary: BinaryForm = "latin1"  # of canal-json
    on_truncate: OnTruncate = "stop"


if TYPE_CHECKING:
    from jobs.core.formats.message_scanner import MessageScanner


class DecoderFrame:
    """The common steps of a decoder; built once for a source, then called for every message.

    A decoder can be pickled: the copy generates its code again from the same arguments."""

    table_keys: ClassVar[Mapping[str, str]] = {}  # the format's names of database and table
    is_json: ClassVar[bool] = True  # so a header of a schema registry may come before it

    def __init__(
        self,
        rules: FormatRules,
        columns: tuple[Column, ...],
        used: tuple[Column, ...],
        bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        self._arguments = rules, columns, used, bytes_max
        self._rules, self._columns, self._used, self._bytes_max = self._arguments
        self._tables = TableFilter(rules.database, rules.table, self.table_keys)
        self._fields = self._make_fields()
        self.decode: Decode = self._fast_decode() if self._fields.nameable else self.explain

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._arguments

    def _make_fields(self) -> RowFields:
        """Return the columns as a normal message has them."""
        raise NotImplementedError

    def _fast_decode(self) -> Decode:
        """Return the generated function; here of a format whose message is a row, an insert."""
        row = self._fields.make_struct("Row", partial=False)
        read = msgspec.json.Decoder(row).decode
        return self._generate(read, self._lines(), self._fields.names())

    def _lines(self) -> Iterator[str]:
        """Yield the lines from the envelope `message` to the changes."""
        yield from self._fields.read_lines("message", "value")
        yield f"return Changes([(1, {self._fields.tuple_code('value')})])"

    def make_scanner(self) -> MessageScanner | None:
        """Return a scanner with the same rules; None if it does not know a column's type."""
        return None

    def _make_scanner(self, format: int, fields: RowFields, **rules: Any) -> MessageScanner | None:
        # Only who scans loads numba: a quarter of a second and 45 MB in each process.
        from jobs.core.formats.message_scanner import MessageScanner, ScanRules, can_scan

        if not (fields.nameable and can_scan(fields.columns, format)):
            return None
        known = ScanRules(
            format,
            self._tables,
            self._read_header,
            missing_is_null=fields.missing_is_null,
            bytes_max=self._bytes_max,
            **rules,
        )
        return MessageScanner(fields.columns, fields.used_indexes, known)

    # --- the exact path ---------------------------------------------------------------------

    def explain(self, value: bytes | None, key: bytes | None = None) -> Decoded:
        """Decode any message; slower than `decode`, with the same result."""
        try:
            if not value:
                return self._decode_tombstone(key)
            return self._decode_json(self._read(value))
        except UnreadableError as error:
            return rejection(str(error))
        except OtherTableError:
            return FILTERED
        except RefusedError as error:
            return error.decoded

    def _read(self, value: bytes) -> object:
        """Return the content of a message; raise UnreadableError if it has none."""
        return read_json(value, self._bytes_max)

    def _decode_tombstone(self, key: bytes | None) -> Decoded:
        return TOMBSTONE

    def _decode_json(self, root: object) -> Decoded:
        """Decode the JSON value of a message; may raise RefusedError."""
        raise NotImplementedError

    def _require_object(self, node: object, path: str = "$") -> dict[str, object]:
        """Return an object of the message; raise RefusedError for any other JSON value."""
        if not isinstance(node, dict):
            raise RefusedError(
                rejection(f"{describe(node)} is not a {self._rules.format} object", path)
            )
        return node

    # --- the fast path ----------------------------------------------------------------------

    def _generate(
        self,
        read_envelope: Callable[[bytes], Any],
        lines: Iterable[str],
        names: dict[str, object],
        *,
        guard: Iterable[str] = (),
        unexpected: tuple[type[Exception], ...] = UNEXPECTED,
    ) -> Decode:
        """Return the function `decode`: `lines` return the outcome of the envelope `message`.

        Lines of `guard` run before the bytes are parsed. A short ASCII message cannot be too large
        or too deep, so only other messages are checked first."""
        call = "explain(value, key)"
        table = "filtered_table(value) or " if self._tables else ""
        source = (
            "def decode(value, key=None):",
            f"    if not value: return {call}",
            f"    if len(value) > {SHORT_MESSAGE_BYTES_MAX} or not value.isascii():",
            f"        if not is_acceptable(value, bytes_max): return {call}",
            *indent(4, guard),
            "    try:",
            "        message = read_envelope(value)",
            *indent(8, lines),
            "    except unexpected:",
            "        if not value[0] and is_json: return decode_content(value, key)",
            f"        return {table}{call}",
        )
        own = {
            "Changes": Changes,
            "bytes_max": self._bytes_max,
            "decode_content": self._decode_content,
            "explain": self.explain,
            "filtered_table": self._filtered_table,
            "is_acceptable": is_acceptable,
            "is_json": self.is_json,
            "read_envelope": read_envelope,
            "unexpected": unexpected,
        }
        decode: Decode = compile_decoder(source, own | self._tables.names() | names)
        return decode

    def _decode_content(self, value: bytes, key: bytes | None) -> Decoded:
        """Decode a message that has a header of a schema registry."""
        content = skip_header(value)
        return self.decode(content, key) if content[:1] > b"\0" else self.explain(value, key)

    def _filtered_table(self, value: bytes) -> Filtered | None:
        """Return FILTERED for a message of another table, whose rows may have other columns."""
        try:
            return None if self._tables.wants(self._read_header(value)) else FILTERED
        except (*UNEXPECTED, AttributeError):
            return None

    def _read_header(self, value: bytes) -> object:
        """Return the object of the message that names its database and table."""
        return self._tables.read_header(value)
