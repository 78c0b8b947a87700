"""Read values that canal copies out of MySQL's binlog, where other formats have a text.

    BINARY       "\\u0000\\u00ff"                        ──► b"\\x00\\xff"   a character is a byte
    ENUM, SET    "2" with mysqlType enum('new','paid')  ──► "paid"        a number has a label

Each message has the labels of its own columns, so that they are right before and after an ALTER.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from jobs.core.formats.row_fields import Memo, RowFields
from jobs.core.plan.tree import Column
from jobs.core.values.change import Value
from jobs.core.values.json_text import JsonNumber, describe
from jobs.core.values.json_values import Converter, TimestampFormat, converter
from schemas.types.sql_types import STRING, Kind, SqlType

BinaryForm = Literal["latin1", "base64"]

_LIST = re.compile(r"(enum|set)\(", re.IGNORECASE)
_LABEL = re.compile(r"\s*'((?:[^'\\]++|''|\\.)*+)'\s*([,)])", re.DOTALL)
_ESCAPE = re.compile(r"''|\\([\\'\"0nr])")
_UNESCAPED = {"0": "\0", "n": "\n", "r": "\r"}
_DIGITS_MAX = 20  # of a SET's number, which has 64 bits


def text_converter(
    timestamp_format: TimestampFormat, binary: BinaryForm
) -> Callable[[SqlType], Converter]:
    """Return a function from types to converters of the texts that canal writes."""

    def convert(sql_type: SqlType) -> Converter:
        if sql_type.kind is Kind.BINARY and binary == "latin1":
            return _to_bytes
        return converter(sql_type, timestamp_format)

    return convert


def _to_bytes(field: object) -> bytes | None:
    """Return the bytes of a BINARY, of which each character is one."""
    if field is None:
        return None
    if not isinstance(field, str) or isinstance(field, JsonNumber):
        raise ValueError(f"{describe(field)} is not a valid BINARY (text of ISO-8859-1)")
    try:
        return field.encode("latin-1")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{describe(field)} is not a valid BINARY: character {error.start} is "
            f"U+{ord(field[error.start]):04X}, and canal writes a byte as U+0000 to U+00FF; if the "
            "text is base64, set source.canal.binary: base64"
        ) from None


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of an ENUM or a SET, in the order of their numbers."""

    column_type: str  # as mysqlType has it
    names: tuple[str, ...]

    @property
    def is_set(self) -> bool:
        return self.column_type[:1] in "sS"

    @classmethod
    def parse(cls, column_type: str) -> Labels | None:
        """Return the labels of a column type; None for a type that has none.

        Labels are quoted as MySQL's SHOW CREATE TABLE quotes them. A list that does not end has no
        labels, so that each number is refused."""
        start = _LIST.match(column_type)
        if start is None:
            return None
        names, at, closed = [], start.end(), False
        while not closed:
            label = _LABEL.match(column_type, at)
            if label is None:
                return cls(column_type, ())
            names.append(_ESCAPE.sub(_unescape, label[1]))
            at, closed = label.end(), label[2] == ")"
        return cls(column_type, tuple(names))

    @property
    def number_max(self) -> int:
        """The largest number with a label."""
        return (1 << len(self.names)) - 1 if self.is_set else len(self.names)

    def find(self, number: int) -> str:
        """Return the text that MySQL shows for a number; raise ValueError if it has none.

        0 is the empty SET, and the value of an ENUM that MySQL could not store."""
        names = self.names
        if self.is_set and number < 1 << len(names):
            return ",".join([name for bit, name in enumerate(names) if number >> bit & 1])
        if not self.is_set and number <= len(names):
            return names[number - 1] if number else ""
        raise ValueError(f"{number} has no label in {describe(self.column_type)}")


def _unescape(match: re.Match[str]) -> str:
    return _UNESCAPED.get(match[1], match[1]) if match[1] else "'"


def labels_of(mysql_type: object, columns: tuple[Column, ...]) -> tuple[Labels | None, ...]:
    """Return the labels of each STRING column by a message's mysqlType; () if none has any."""
    types: Mapping[str, object] = mysql_type if isinstance(mysql_type, dict) else {}
    found = [
        Labels.parse(text)
        if column.type.kind is Kind.STRING and isinstance(text := types.get(column.name), str)
        else None
        for column in columns
    ]
    return tuple(found) if any(found) else ()


class LabelledFields(RowFields):
    """The row objects of messages that have these labels; all other columns are as in `plain`."""

    def __init__(self, plain: RowFields, labels: tuple[Labels | None, ...]) -> None:
        used = tuple(plain.columns[index] for index in plain.used_indexes)
        super().__init__(plain.columns, used, converter, missing_is_null=plain.missing_is_null)
        self._plain, self._labels = plain, labels
        self.converters = tuple(
            each if own is None else _label_converter(own)
            for each, own in zip(plain.converters, labels, strict=True)
        )

    def make_memos(self) -> list[Memo]:
        return [
            memo if own is None else Memo(convert, memo.entries_max)
            for memo, own, convert in zip(
                self._plain.memos, self._labels, self.converters, strict=True
            )
        ]

    def is_kept(self, index: int) -> bool:
        return self._labels[index] is None and super().is_kept(index)


def _label_converter(labels: Labels) -> Converter:
    """Return a function from numbers to labels; a text that is no number is kept as it is."""
    to_text = converter(STRING)

    def convert(field: object) -> Value:
        text = to_text(field)
        if not isinstance(text, str) or not (text.isascii() and text.isdecimal()):
            return text
        if len(text) > _DIGITS_MAX:
            raise ValueError(f"{describe(text)} has no label in {describe(labels.column_type)}")
        return to_text(labels.find(int(text)))

    return convert
