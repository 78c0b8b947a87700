"""Decode CSV events: each message is one line, and an insert.

    7;'a, b';3   delimiter: ;   quote: "'"   fields: [id, name, cnt]   ──►  +I (7, "a, b", 3)

Fields are counted from the left. What a line means is that of Flink's csv format: no blank is
removed, a quote inside a bare field is itself, and only `null_literal` is NULL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from jobs.core.formats.frame import DecoderFrame
from jobs.core.formats.row_fields import TOMBSTONE, Decode, Memo, RowFields, indent, rejection
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, Decoded, Value
from jobs.core.values.json_values import Converter, converter
from schemas import limits
from schemas.spec.event_formats import CsvEvents
from schemas.types.sql_types import SqlType

_BYTE_ORDER_MARK = "\ufeff"
_LINE_ENDS = re.compile(r"[\r\n]")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}  # as Jackson reads them


class CsvError(ValueError):
    """The line is not CSV; the text is the reason."""


class CsvSplitter:
    """Splits a line into its fields."""

    def __init__(self, layout: CsvEvents) -> None:
        delimiter, quote, escape = map(re.escape, (layout.delimiter, layout.quote, layout.escape))
        self._delimiter = layout.delimiter
        self._quote = layout.quote
        self._special = [mark for mark in (layout.quote, layout.escape) if mark]
        unplain = "".join([*self._special, "\n", "\r", _BYTE_ORDER_MARK])
        self._find_unplain = re.compile(f"[{re.escape(unplain)}]").search
        escaped = rf"|{escape}." if escape else ""
        bare = rf"((?:[^{delimiter}{escape}]{escaped})*+)"
        if quote:
            quoted = rf"{quote}((?:[^{quote}{escape}]|{quote}{quote}{escaped})*+){quote}"
            self._field = re.compile(rf"{quoted}|(?!{quote}){bare}", re.DOTALL)
        else:
            self._field = re.compile(rf"(?!){bare}|{bare}", re.DOTALL)
        marks = [f"{mark}(.)" for mark in (quote, escape) if mark]
        self._doubled = re.compile("|".join(marks) or "(?!)", re.DOTALL)

    def split(self, line: str) -> list[str]:
        """Return the fields; raise CsvError."""
        if not any(mark in line for mark in self._special):
            if _LINE_ENDS.search(line):
                raise CsvError("the message has several lines; a message is one line")
            return line.split(self._delimiter)
        fields: list[str] = []
        at = 0
        while True:
            found = self._field.match(line, at)
            if found is None:
                raise CsvError(f"the quote at character {at} is not closed")
            quoted, bare = found.groups()
            if quoted is not None:
                fields.append(self._doubled.sub(self._unescape, quoted))
            elif _LINE_ENDS.search(bare):
                raise CsvError("the message has several lines; a message is one line")
            else:
                fields.append(self._unescape_bare(bare))
            at = found.end()
            if at == len(line):
                return fields
            if line[at] != self._delimiter:
                raise CsvError(f"{line[at]!r} at character {at} follows a closing quote")
            at += 1

    def split_plain(self, value: bytes) -> list[str]:
        """Return the fields of a line without quotes and escapes; raise ValueError for another."""
        line = value.decode()
        if self._find_unplain(line) is not None:
            raise ValueError  # nobody reads a reason: `explain` decodes the line
        return line.split(self._delimiter)

    def _unescape(self, found: re.Match[str]) -> str:
        mark, character = found[0][0], found[0][1]
        return character if mark == self._quote else _ESCAPED.get(character, character)

    def _unescape_bare(self, field: str) -> str:
        """Resolve the escapes of a bare field, in which a quote is an ordinary character."""
        escape = self._special[-1] if len(self._special) > bool(self._quote) else ""
        if not escape or escape not in field:
            return field
        return re.sub(f"{re.escape(escape)}(.)", self._unescape, field, flags=re.DOTALL)


class CsvFields(RowFields):
    """The columns of a line, each at its position; `null` is the text of NULL, or None."""

    def __init__(
        self,
        columns: tuple[Column, ...],
        used: tuple[Column, ...],
        positions: Sequence[int],
        convert: Callable[[SqlType], Converter],
    ) -> None:
        super().__init__(columns, used, convert, missing_is_null=False)
        self._positions = positions

    def read_lines(self, row: str, value: str) -> Iterator[str]:
        for index, position in enumerate(self._positions):
            yield f"field = {row}[{position}]"
            yield f"if field == null: {value}{index} = None"
            yield "else:"
            yield "    pass"
            yield from indent(4, self._field_lines(index, "field", f"{value}{index}"))


class CsvDecoder(DecoderFrame):
    """Decodes CSV events for one source."""

    is_json = False

    def _make_fields(self) -> CsvFields:
        layout, convert = self._rules.csv, self._convert
        self._splitter = CsvSplitter(layout)
        self._names = layout.fields or tuple(column.name for column in self._columns)
        positions = [self._names.index(column.name) for column in self._columns]
        entries_max = max(1, limits.MEMO_ENTRIES_MAX // max(1, len(positions)))
        memos = [Memo(convert(column.type), entries_max) for column in self._columns]
        self._memos = list(zip(positions, memos, strict=True))
        return CsvFields(self._columns, self._used, positions, convert)

    def _convert(self, sql_type: SqlType) -> Converter:
        return converter(sql_type, self._rules.timestamp_format)

    def _fast_decode(self) -> Decode:
        names = self._fields.names() | {"null": self._rules.csv.null_literal}
        return self._generate(self._splitter.split_plain, self._lines(), names)

    def explain(self, value: bytes | None, key: bytes | None = None) -> Decoded:
        if not value:
            return TOMBSTONE
        if len(value) > self._bytes_max:
            return rejection(f"the message has {len(value)} bytes; the limit is {self._bytes_max}")
        try:
            line = value.decode("utf-8", "strict").removeprefix(_BYTE_ORDER_MARK)
        except UnicodeDecodeError as error:
            return rejection(f"not UTF-8 at byte {error.start}: {error.reason}")
        try:
            fields = self._splitter.split(line.removesuffix("\n").removesuffix("\r"))
        except CsvError as error:
            return rejection(str(error))
        if len(fields) != len(self._names):
            return rejection(f"the line has {len(fields)} fields; it needs {len(self._names)}")
        row: list[Value] = []
        for at, memo in self._memos:
            field = fields[at]
            try:
                row.append(None if field == self._rules.csv.null_literal else memo[field])
            except ValueError as error:
                reason = str(error)
                if not field:
                    reason = f"{error}; set csv.null_literal if it is NULL"
                return rejection(reason, self._names[at])
        return Changes([(1, self._fields.pick(row))])

    def _lines(self) -> Iterator[str]:
        yield f"if len(message) != {len(self._names)}: return explain(value)"
        yield from super()._lines()
