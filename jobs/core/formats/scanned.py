"""What a scan finds in many messages, as arrays; without the kernel, which loads numba."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from jobs.core.kernels import codes
from jobs.core.kernels.codes import NO_TIME, UNUSUAL
from jobs.core.values.change import Row, Value
from jobs.core.values.json_text import JsonNumber
from jobs.core.values.json_values import converter
from schemas.types.sql_types import Kind, SqlType

Array = np.ndarray[Any, Any]


SCANNED_FORMATS = {
    "canal-json": codes.CANAL,
    "maxwell-json": codes.MAXWELL,
    "debezium-json": codes.DEBEZIUM,
}

# The column kinds of the kernel; whole numbers of every size are codes.INTEGER, and a DECIMAL of
# more digits than a word has is codes.WIDE.
KINDS = {
    Kind.DECIMAL: codes.DECIMAL,
    Kind.STRING: codes.TEXT,
    Kind.BOOLEAN: codes.BOOLEAN,
    Kind.DATE: codes.DATE,
    Kind.TIMESTAMP: codes.TIMESTAMP,
    Kind.TIMESTAMP_LTZ: codes.TIMESTAMP,
    Kind.TIME: codes.TIME,
    Kind.FLOAT: codes.FLOATING,
    Kind.DOUBLE: codes.FLOATING,
    Kind.BINARY: codes.BINARY,
}


def is_scannable(sql_type: SqlType, format: int | None) -> bool:
    """Return whether the scanner reads columns of this type in this format."""
    if format == codes.DEBEZIUM and sql_type.kind is Kind.TIME:  # a number, which is not the text
        return False
    return sql_type.integer or sql_type.kind in KINDS


class ScannedColumn(NamedTuple):
    """One used column of all images: numbers, or texts one after another and where they end."""

    type: SqlType
    valid: Array  # bool
    numbers: Array  # int64; empty for texts
    ends: Array  # int32, one more than images; empty for numbers
    text: bytes
    # Of a BINARY, whether each character is a byte; of a FLOAT, whether it is a number of JSON;
    # of a DECIMAL, whether some texts are the bytes of its digits in base64.
    is_latin1: bool = False
    is_number: bool = False
    may_be_base64: bool = False

    def values(self) -> list[Value]:
        """Return the values as `decode` does."""
        found: list[Value]
        if len(self.ends):
            convert = self._converter()
            texts = zip(self.cut(), self.valid.tolist(), strict=True)
            return [convert(text.decode()) if valid else None for text, valid in texts]
        if self.type.kind is Kind.BOOLEAN:
            found = (self.numbers != 0).tolist()
        elif self.type.textual_time:
            moments = np.datetime_as_string(self.numbers.view("datetime64[ns]"), unit="ns")
            found = [text.replace("T", " ") for text in moments.tolist()]
        else:
            found = self.numbers.tolist()
        pairs = zip(found, self.valid.tolist(), strict=True)
        return [value if valid else None for value, valid in pairs]

    def cut(self) -> list[bytes]:
        """Return each text."""
        bounds = zip(self.ends[:-1].tolist(), self.ends[1:].tolist(), strict=True)
        return [self.text[start:end] for start, end in bounds]

    def _converter(self) -> Callable[[str], Value]:
        if self.is_latin1:
            return lambda text: text.encode("latin-1")
        convert = converter(self.type)
        if self.may_be_base64:
            return lambda text: _read_decimal(text, convert)
        return (lambda text: convert(JsonNumber(text))) if self.is_number else convert


def _read_decimal(text: str, convert: Callable[[str], Value]) -> Value:
    """Return a DECIMAL of base64 or of a number; the scan took none that could be both."""
    if len(text) % 4 or "." in text or "-" in text:
        return convert(text)
    return int.from_bytes(binascii.a2b_base64(text), "big", signed=True)


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a scan found in some messages."""

    outcomes: Array  # of each message: UNUSUAL, GOOD or FILTERED
    es: Array  # of each message, NO_TIME if it has none
    ts: Array
    ids: Array  # of the batches in which canal sent the messages, or NO_TIME
    signs: Array  # int8, of each image
    owners: Array  # int32, the message of each image, ascending
    columns: list[ScannedColumn]

    @property
    def unusual(self) -> list[int]:
        """The messages that the scanner leaves to another decoder."""
        return np.flatnonzero(self.outcomes == UNUSUAL).tolist()

    def latest_of_rows(self, times: Array, valid: Array) -> Array:
        """Return of each message the latest of its rows' times, or NO_TIME."""
        latest = np.full(len(self.outcomes), NO_TIME, np.int64)
        np.maximum.at(latest, self.owners[valid], times[valid])
        return latest

    def changes(self) -> list[tuple[int, Row]]:
        """Return the signed rows as `decode` does."""
        columns = [column.values() for column in self.columns]
        rows = zip(*columns, strict=True) if columns else iter([()] * len(self.signs))
        return list(zip(self.signs.tolist(), rows, strict=True))


class Scanner(Protocol):
    """Scans the messages of one source."""

    def scan(self, values: Sequence[bytes | None]) -> Scanned: ...

    def scan_buffer(self, buffer: Array, starts: Array) -> Scanned: ...
