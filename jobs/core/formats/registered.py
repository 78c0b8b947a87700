"""Decode messages whose schema a registry has, with Debezium's envelope or plain rows.

    0 │ id of the schema, 4 bytes │ ..
        └► the registry's schema ──► usual messages: a reader of that schema
                                └──► others: all of it as JSON, as debezium-json has it

A message is read by the schema that wrote it, and its columns are found by name. So a column that
a schema lacks is as one that a JSON message lacks (`on_schema_change`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from jobs.core.formats.debezium import INSERTS, DebeziumDecoder
from jobs.core.formats.debezium_fields import DebeziumFields, Modes
from jobs.core.formats.frame import FormatRules
from jobs.core.formats.row_fields import UNEXPECTED, Decode, RefusedError, clip
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, Decoded, RejectCode, Rejected
from jobs.core.values.json_text import UnreadableError
from schemas import limits

# Returns the schemas of an id, of which the last one may name types of those before it.
FindSchema = Callable[[int], tuple[str, ...]]

HEADER = struct.Struct(">BI")
_UNUSUAL = (*UNEXPECTED, IndexError, struct.error)
_UNCOMPILED = (SyntaxError, RecursionError, MemoryError)  # of code that nests too deep for Python
# Without a name of its type, a number may be a date, but is no time.
BY_SCHEMA = Modes(times="isostring")


class SchemaError(ValueError):
    """A schema or a message is not valid or not supported; the text is the reason."""


class UnknownSchemaError(SchemaError):
    """The registry has no schema of the message's id."""


class RegisteredDecoder(DebeziumDecoder):
    """Decodes messages with schemas of a registry for one source; a format adds how to read."""

    def __init__(
        self,
        rules: FormatRules,
        columns: tuple[Column, ...],
        used: tuple[Column, ...],
        bytes_max: int = limits.MESSAGE_BYTES_MAX,
        find_schema: FindSchema | None = None,
    ) -> None:
        self._find_schema = find_schema
        self._type_of = lru_cache(limits.MESSAGE_SCHEMAS_MAX)(self._find_type)
        self._is_envelope = rules.format.startswith("debezium-")
        super().__init__(rules, columns, used, bytes_max)
        self._constructor = rules, columns, used, bytes_max, find_schema

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._constructor

    def make_scanner(self) -> None:
        return None

    # --- of the format ----------------------------------------------------------------------

    def _header_size(self, value: bytes) -> int:
        """Return the bytes that say which type a message has."""
        return HEADER.size

    def _parse_type(self, texts: tuple[str, ...], header: bytes) -> Any:
        """Return the type of messages that start with a header; raise SchemaError."""
        raise NotImplementedError

    def _read_content(self, node: Any, value: bytes, at: int) -> object:
        """Return the content of a message as JSON; raise SchemaError or IndexError."""
        raise NotImplementedError

    def _fields_by(self, node: Any) -> DebeziumFields:
        """Return the columns of messages of a type."""
        raise NotImplementedError

    def _describe(self, node: Any) -> dict[str, object]:
        """Return the columns of rows as fields of a schema of Kafka Connect."""
        raise NotImplementedError

    def _make_reader(self, header: bytes) -> Callable[[bytes], Decoded]:
        """Return a function that reads usual messages of a type."""
        raise NotImplementedError

    # --- the exact path ---------------------------------------------------------------------

    def _find_type(self, header: bytes) -> Any:
        if len(header) < HEADER.size or header[0]:
            raise SchemaError(
                "the message does not start with 0 and the id of a schema; is it written with the "
                "serializer of a schema registry?"
            )
        if self._find_schema is None:
            raise UnknownSchemaError("no schema registry is at hand to read this message")
        return self._parse_type(self._find_schema(HEADER.unpack_from(header)[1]), header)

    def _read(self, value: bytes) -> object:
        """Return the type and the JSON of a message."""
        if len(value) > self._bytes_max:
            reason = f"the message has {len(value)} bytes; the limit is {self._bytes_max}"
            raise UnreadableError(reason)
        try:
            size = self._header_size(value)
            node = self._type_of(value[:size])
            if size > len(value):
                raise IndexError(size)
            return node, self._read_content(node, value, size)
        except UnknownSchemaError as error:
            rejected = Rejected(clip(str(error)), code=RejectCode.SCHEMA)
            raise RefusedError(rejected) from None
        except SchemaError as error:
            raise UnreadableError(str(error)) from None
        except IndexError:
            raise UnreadableError("the message ends within a value") from None

    def _decode_json(self, root: Any) -> Decoded:
        node, content = root
        message, fields = self._require_object(content), self._fields_by(node)
        if self._is_envelope:
            return self._decode_payload(message, fields, "$")
        return Changes([(1, fields.pick(fields.parse_row(message, "$")))])

    def read_source(self, value: bytes) -> dict[str, object]:
        """Return the object of a decoded message that names its database and table."""
        root: Any = self._read(value)
        source = root[1].get("source")
        return source if isinstance(source, dict) else {}

    def read_described(self, value: bytes) -> tuple[dict[str, object], dict[str, object]]:
        """Return a message as JSON, and its columns as fields of a schema of Kafka Connect."""
        try:
            root: Any = self._read(value)
            return self._require_object(root[1]), self._describe(root[0])
        except UnreadableError as error:
            raise SchemaError(str(error)) from None
        except RefusedError as error:
            raise SchemaError(getattr(error.decoded, "reason", "")) from None

    # --- the fast path ----------------------------------------------------------------------

    def _fast_decode(self) -> Decode:
        readers, bytes_max, header_size = self._readers(), self._bytes_max, self._header_size

        def decode(value: bytes | None, key: bytes | None = None, /) -> Decoded:
            if value and len(value) <= bytes_max:
                try:
                    return readers[value[: header_size(value)]](value)
                except _UNUSUAL:
                    pass
            return self.explain(value, key)

        return decode

    def _outcome(self, plus: str, minus: str) -> Iterator[str]:
        """Yield lines that return the changes of an envelope, with the code of its rows."""
        for name in self._tables.names_read:
            yield f"if not is_wanted_{name}[{name}]: return filtered"
        yield f"if op == 'u' and after and before: return {changes_code(minus, plus)}"
        yield f"if op in {INSERTS!r} and after: return {changes_code(plus)}"
        yield f"if op == 'd' and before: return {changes_code(minus)}"
        if self._rules.last_images:
            yield f"if op == 'u' and after: return {changes_code(plus)}"
        yield "raise ValueError('op')"

    def _readers(self) -> dict[bytes, Callable[[bytes], Decoded]]:
        return _Readers(self._make_reader)


class _Readers(dict[bytes, Callable[[bytes], Decoded]]):
    """The readers of messages by their first bytes."""

    def __init__(self, make: Callable[[bytes], Callable[[bytes], Decoded]]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, header: bytes) -> Callable[[bytes], Decoded]:
        if len(self) >= limits.MESSAGE_SCHEMAS_MAX:
            self.clear()
        try:
            reader = self._make(header)
        except UnknownSchemaError:  # perhaps it is known later
            raise
        except (ValueError, *_UNCOMPILED) as error:
            reader = _refuse(str(error))
        self[header] = reader
        return reader


def changes_code(*rows: str) -> str:
    return f"Changes([{', '.join(rows)}], es, ts)"


def _refuse(reason: str) -> Callable[[bytes], Decoded]:
    """Return a reader that leaves every message to the exact path."""

    def read(_: bytes) -> Decoded:
        raise ValueError(reason)

    return read
