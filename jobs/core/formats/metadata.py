"""Give rows the metadata of their message: its database, its table and its times.

    message ──┬─ decoder or scanner ──► signed rows, es, ts ──┐
              └─ header: database, table ─────────────────────┴──► rows with __table and others

This is a layer around the decoder of a format, so that a job without metadata has no cost of it.
A message that does not have such a member gives NULL. The rows of an update have the values of
their message; so a query may use only what is the same for a row's whole life, or images of which
the last one is retracted (`jobs.core.job.job_plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from jobs.core.formats.frame import DecoderFrame
from jobs.core.formats.registered import RegisteredDecoder
from jobs.core.formats.row_fields import UNEXPECTED, rejection
from jobs.core.formats.scanned import Array, Scanned, ScannedColumn, Scanner
from jobs.core.kernels.codes import GOOD, NO_TIME
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, Decoded, Rejected, Row, Value
from jobs.core.values.json_text import describe, read_json
from jobs.core.values.json_values import converter
from schemas.spec.source import FORMATS_WITHOUT_TABLES, METADATA_TYPES
from schemas.types.sql_types import STRING

_DATABASE, _TABLE, _ES, _TS = METADATA_TYPES
_to_text = converter(STRING)
Names = tuple[str | None, str | None]  # of the database and the table


def without_metadata(columns: Sequence[Column], format: str) -> tuple[Column, ...]:
    """Return the columns that are members of row objects.

    In a format without tables a column may have the name of metadata of another one."""
    if format in FORMATS_WITHOUT_TABLES:
        return tuple(columns)
    return tuple(column for column in columns if column.name not in METADATA_TYPES)


class MetadataDecoder:
    """A decoder whose rows have metadata among their columns."""

    def __init__(self, inner: DecoderFrame, format: str, used: tuple[Column, ...]) -> None:
        self._arguments = inner, format, used
        self._inner, self._used = inner, used
        self._header = _Header(format, inner if isinstance(inner, RegisteredDecoder) else None)

    def __reduce__(self) -> tuple[object, ...]:
        return MetadataDecoder, self._arguments

    def decode(self, value: bytes | None, key: bytes | None = None) -> Decoded:
        return self._complete(self._inner.decode(value, key), value)

    def explain(self, value: bytes | None, key: bytes | None = None) -> Decoded:
        """Decode any message; slower than `decode`, with the same result."""
        return self._complete(self._inner.explain(value, key), value)

    def make_scanner(self) -> Scanner | None:
        """Return a scanner with the same rules; None if it does not know a column's type."""
        inner = self._inner.make_scanner()
        return None if inner is None else _MetadataScanner(inner, self._used, self._header)

    def _complete(self, decoded: Decoded, value: bytes | None) -> Decoded:
        """Return the outcome of a message with metadata in its rows."""
        if not isinstance(decoded, Changes):
            return decoded
        assert value is not None
        names = self._header.read(value)
        if isinstance(names, Rejected):
            return names
        own: dict[str, Value] = {
            _DATABASE: names[0],
            _TABLE: names[1],
            _ES: decoded.es,
            _TS: decoded.ts,
        }
        changes = [(sign, self._arrange(row, own)) for sign, row in decoded.changes]
        return msgspec.structs.replace(decoded, changes=changes)

    def _arrange(self, row: Row, own: dict[str, Value]) -> Row:
        members = iter(row)
        return tuple(
            own[column.name] if column.name in own else next(members) for column in self._used
        )


class _Header:
    """Reads the names of a message's database and table."""

    def __init__(self, format: str, registered: RegisteredDecoder | None = None) -> None:
        is_debezium = format.startswith("debezium-")
        keys, self._registered = (
            ("db", "table") if is_debezium else ("database", "table"),
            registered,
        )
        self._keys, self._nested = keys, is_debezium
        names: list[Any] = [(key, str | None, None) for key in keys]
        header = msgspec.defstruct("Names", names, gc=False)
        if self._nested:
            source: list[Any] = [("source", header | None, None)]
            payload = msgspec.defstruct("Payload", source, gc=False)
            header = msgspec.defstruct("Message", [*source, ("payload", payload | None, None)])
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(header).decode

    def read(self, value: bytes) -> Names | Rejected:
        """Return the names, None for one that the message lacks."""
        if self._registered is not None:
            return self._check(self._registered.read_source(value), "$.source")
        try:
            found = self._decode(value)
        except UNEXPECTED:
            return self._read_exactly(value)
        if self._nested:
            found = (found if found.payload is None else found.payload).source
        database, table = (getattr(found, key, None) for key in self._keys)
        return database, table

    def _read_exactly(self, value: bytes) -> Names | Rejected:
        node: Any = read_json(value, len(value))
        path = "$"
        if self._nested:
            node, path = (node["payload"], "$.payload") if "payload" in node else (node, path)
            node, path = node.get("source"), f"{path}.source"
        return self._check(node if isinstance(node, dict) else {}, path)

    def _check(self, members: dict[str, Any], path: str) -> Names | Rejected:
        for key in self._keys:
            name = members.get(key)
            if name is not None and type(name) is not str:
                return rejection(f"{describe(name)} is not the name of a {key}", f"{path}.{key}")
            try:
                _to_text(name)
            except ValueError as error:
                return rejection(str(error), f"{path}.{key}")
        database, table = (members.get(key) for key in self._keys)
        return database, table


class _MetadataScanner:
    """A scanner whose rows have metadata; a message that it takes has names, or none."""

    def __init__(self, inner: Scanner, used: tuple[Column, ...], header: _Header) -> None:
        self._inner, self._used, self._header = inner, used, header

    def scan(self, values: Sequence[bytes | None]) -> Scanned:
        return self._complete(self._inner.scan(values), lambda number: values[number] or b"")

    def scan_buffer(self, buffer: Array, starts: Array) -> Scanned:
        def value(number: int) -> bytes:
            return buffer[starts[number] : starts[number + 1] - 1].tobytes()

        return self._complete(self._inner.scan_buffer(buffer, starts), value)

    def _complete(self, scanned: Scanned, value: Callable[[int], bytes]) -> Scanned:
        names: list[Names] = [(None, None)] * len(scanned.outcomes)
        for number in np.flatnonzero(scanned.outcomes == GOOD).tolist():
            read = self._header.read(value(number))
            assert not isinstance(read, Rejected)
            names[number] = read
        members = iter(scanned.columns)
        columns = [
            _own_column(column, scanned, names) if column.name in METADATA_TYPES else next(members)
            for column in self._used
        ]
        return replace(scanned, columns=columns)


def _own_column(column: Column, scanned: Scanned, names: list[Names]) -> ScannedColumn:
    """Return the metadata of each row's message."""
    if column.name in (_ES, _TS):
        times = (scanned.es if column.name == _ES else scanned.ts)[scanned.owners]
        valid = times != NO_TIME
        numbers = np.where(valid, times, 0)
        return ScannedColumn(column.type, valid, numbers, np.zeros(0, np.int32), b"")
    place = 0 if column.name == _DATABASE else 1
    known = [names[owner][place] for owner in scanned.owners.tolist()]
    texts = [b"" if name is None else name.encode() for name in known]
    ends = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, texts), np.int32, len(texts)), out=ends[1:])
    valid = np.array([name is not None for name in known], bool)
    return ScannedColumn(column.type, valid, np.zeros(0, np.int64), ends, b"".join(texts))
