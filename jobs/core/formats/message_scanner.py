"""Scan many messages at once: Python's side of the kernel for three formats.

    list of bytes ─► one buffer ─► kernels.scan ─► arrays of each used column, an outcome a message
    records as they were read ─┘

The scanner takes what sources usually write. `Scanned.unusual` names the messages that it leaves to
`decode`; of the others its rows are those that `decode` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from jobs.core.formats.debezium_fields import DAYS, MICROSECONDS, UNITS_NS, UNITS_US, Encoding
from jobs.core.formats.mysql_values import Labels
from jobs.core.formats.row_fields import UNEXPECTED
from jobs.core.formats.scanned import KINDS, Scanned, ScannedColumn, is_scannable
from jobs.core.formats.table_filter import TableFilter
from jobs.core.kernels import codes
from jobs.core.kernels import field_values as fields
from jobs.core.kernels import messages as kernel
from jobs.core.kernels.codes import NO_TIME
from jobs.core.kernels.compiled import AVAILABLE, Array
from jobs.core.kernels.json_bytes import NUMBER, PAD, STRING
from jobs.core.kernels.message_members import MESSAGE_SIZE, TYPES_AT, TYPES_SIZE
from jobs.core.plan.tree import Column
from jobs.core.values.json_values import TimestampFormat
from schemas.limits import (
    MESSAGE_BYTES_MAX,
    SCAN_LABELS_MAX,
    SCAN_NAME_BYTES_MAX,
    SCAN_TABLES_MAX,
    SCAN_TOKENS_MAX,
    SCAN_TYPES_BYTES_MAX,
)
from schemas.types.sql_types import Kind, SqlType, integer_range

_INSTANTS = (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ)
_ENCODINGS = {"number": codes.AS_NUMBER, "base64": codes.AS_BASE64, "auto": codes.AS_EITHER}
# Microseconds, and nanoseconds for times with more digits; below 0 so many are one.
_UNITS = UNITS_US | {"ns": -1_000}
_NANOSECONDS = (-(2**63) + 1, 2**63 - 1)
_IMAGES_AT_FIRST = 2_048
# Powers of ten of numbers that neither overflow nor become zero.
_FLOAT_POWERS, _DOUBLE_POWERS = (-38, 37), (-308, 307)


@dataclass(frozen=True, slots=True)
class ScanRules:
    """What a scanner knows of a source, besides its columns."""

    format: int  # of codes
    tables: TableFilter
    read_header: Callable[[bytes], object]  # the names of a message's database and table
    names: tuple[str, str] = ("database", "table")  # of these two in the format
    timestamp_format: TimestampFormat = "sql"
    encodings: tuple[Encoding, ...] = ()  # of the columns, for debezium-json
    missing_is_null: bool = False
    last_images: bool = False
    bytes_max: int = MESSAGE_BYTES_MAX
    binary_is_latin1: bool = False
    # The labels of each column, by the text of a `mysqlType`; () if none has any.
    read_labels: Callable[[bytes], tuple[Labels | None, ...]] | None = None


class MessageScanner:
    """Scans the messages of one source."""

    def __init__(
        self, columns: tuple[Column, ...], used: tuple[int, ...], rules: ScanRules
    ) -> None:
        self._rules = rules
        self._bytes_max = rules.bytes_max
        self._types = [columns[index].type for index in used]
        self._source = _source(columns, used, rules)
        self._kinds = self._source.columns["kind"][self._source.used].tolist()
        self._encodings = self._source.columns["encoding"][self._source.used].tolist()
        self._known: list[tuple[bytes, bytes, bool]] = []
        self._labels: list[tuple[bytes, tuple[Labels | None, ...]]] = [(b"", ())]
        self._message = np.zeros(MESSAGE_SIZE, np.int64)
        tokens = max(SCAN_TOKENS_MAX, len(columns))
        self._data, self._old = np.zeros((2, tokens), fields.TOKEN)
        self._images_max = _IMAGES_AT_FIRST
        self._images: kernel.Images | None = None

    def scan(self, values: Sequence[bytes | None]) -> Scanned:
        values, sizes = self._usable(values)
        buffer = np.frombuffer(b"\0".join([*values, bytes(PAD)]), np.uint8)
        starts = np.zeros(len(values) + 1, np.int64)
        np.cumsum(np.array(sizes, np.int64) + 1, out=starts[1:])
        return self._scan(buffer, starts)

    def scan_buffer(self, buffer: Array, starts: Array) -> Scanned:
        """Scan messages of a buffer, with a byte after each and PAD bytes after the last."""
        if (np.diff(starts) - 1 <= self._bytes_max).all():
            return self._scan(buffer, starts)
        bounds = zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        return self.scan([buffer[start : end - 1].tobytes() for start, end in bounds])

    def _scan(self, buffer: Array, starts: Array) -> Scanned:
        images = self._room(len(starts) - 1, int(starts[-1] - starts[0]))
        if len(self._labels) > SCAN_LABELS_MAX:
            self._know_labels([self._labels[0]])
        message, count = 0, 0
        while True:
            message, count, why = kernel.scan(
                buffer,
                starts,
                message,
                count,
                self._source,
                self._data,
                self._old,
                self._message,
                images,
            )
            if why == kernel.DONE:
                return self._result(images, count)
            if why == kernel.FULL:
                images = self._enlarge(images, count)
            elif why == kernel.NEW_LABELS:
                at, size = self._message[TYPES_AT], self._message[TYPES_SIZE]
                message += 0 if self._learn_labels(buffer[at : at + size].tobytes()) else 1
            elif not self._check_table(buffer[starts[message] : starts[message + 1] - 1].tobytes()):
                message += 1  # its outcome is unusual already

    def _usable(self, values: Sequence[bytes | None]) -> tuple[Sequence[bytes], list[int]]:
        """Return the values and their sizes; nothing, which is unusual, stands for a large one."""
        try:
            sizes = list(map(len, values))  # type: ignore[arg-type]
            if max(sizes, default=0) <= self._bytes_max:
                return values, sizes  # type: ignore[return-value]
        except TypeError:  # a tombstone
            pass
        usable = [value if value and len(value) <= self._bytes_max else b"" for value in values]
        return usable, list(map(len, usable))

    def _check_table(self, value: bytes) -> bool:
        """Find out whether a message's table is wanted, and remember it."""
        try:
            header = self._rules.read_header(value)
            wanted = self._rules.tables.wants(header)
        except (*UNEXPECTED, AttributeError):
            return False
        database, table = (f'"{getattr(header, name, "")}"'.encode() for name in self._rules.names)
        if len(database) + len(table) > SCAN_NAME_BYTES_MAX:
            return False
        self._known = [(database, table, wanted), *self._known[: SCAN_TABLES_MAX - 1]]
        names = [name for *both, _ in self._known for name in both]
        starts, sizes = _starts(names), np.array(list(map(len, names)), np.int64)
        tables = np.zeros(len(self._known), kernel.KNOWN_TABLE)
        tables["database_at"], tables["table_at"] = starts[:-1:2], starts[1:-1:2]
        tables["database_size"], tables["table_size"] = sizes[::2], sizes[1::2]
        tables["wanted"] = [wanted for *_, wanted in self._known]
        self._source = self._source._replace(tables=tables, known_names=_pad(b"".join(names)))
        return True

    def _learn_labels(self, types: bytes) -> bool:
        """Remember the labels of a `mysqlType`; return False if that cannot be."""
        rules = self._rules
        if rules.read_labels is None or len(types) > SCAN_TYPES_BYTES_MAX:
            return False
        if len(self._labels) > 2 * SCAN_LABELS_MAX:  # of these messages alone
            return False
        try:
            labels = rules.read_labels(types)
            "".join(name for own in labels if own for name in own.names).encode()
        except UNEXPECTED:
            return False
        self._know_labels([*self._labels, (types, labels)])
        return True

    def _know_labels(self, labels: list[tuple[bytes, tuple[Labels | None, ...]]]) -> None:
        self._labels = labels
        texts = [types for types, _ in labels]
        known = np.zeros(len(labels), kernel.LABELS)
        known["at"], known["size"] = _starts(texts)[:-1], list(map(len, texts))
        maxima = np.full((len(labels), len(self._source.columns)), -1, np.int64)
        for row, (_, of_columns) in zip(maxima, labels, strict=True):
            for column, own in enumerate(of_columns):
                if own is not None:
                    row[column] = min(own.number_max, fields.LABEL_MAX)
        self._source = self._source._replace(
            labels=known, label_maxima=maxima, known_types=_pad(b"".join(texts))
        )

    def _room(self, messages: int, size: int) -> kernel.Images:
        """Return room for the images of some messages; what it holds is copied after the scan."""
        images = self._images
        if images is None or images.texts.shape[1] < 2 * size:
            images = self._images = self._new_images(self._images_max, 2 * size)
        return images._replace(
            outcomes=np.zeros(messages, np.uint8),
            es=np.full(messages, NO_TIME, np.int64),
            ts=np.full(messages, NO_TIME, np.int64),
            ids=np.full(messages, NO_TIME, np.int64),
            labels=np.zeros(messages, np.int32),
        )

    def _new_images(self, count: int, size: int) -> kernel.Images:
        width, nothing = len(self._types), np.zeros(0, np.int64)
        return kernel.Images(
            signs=np.empty(count, np.int8),
            owners=np.empty(count, np.int32),
            numbers=np.empty((width, count), np.int64),
            valid=np.empty((width, count), np.uint8),
            # An update writes a text twice, for its old image and for its new one.
            texts=np.empty((np.count_nonzero(self._source.text_rows >= 0), size), np.uint8),
            ends=np.zeros((width, count + 1), np.int32),
            outcomes=nothing.astype(np.uint8),
            es=nothing,
            ts=nothing,
            ids=nothing,
            labels=nothing.astype(np.int32),
        )

    def _enlarge(self, images: kernel.Images, count: int) -> kernel.Images:
        """Return twice as much room, with the images so far in it."""
        self._images_max *= 2
        larger = self._new_images(self._images_max, 0)
        larger.signs[:count], larger.owners[:count] = images.signs[:count], images.owners[:count]
        larger.numbers[:, :count] = images.numbers[:, :count]
        larger.valid[:, :count] = images.valid[:, :count]
        larger.ends[:, : count + 1] = images.ends[:, : count + 1]
        self._images = larger = larger._replace(texts=images.texts)
        found = {name: getattr(images, name) for name in ("outcomes", "es", "ts", "ids", "labels")}
        return larger._replace(**found)

    def _result(self, images: kernel.Images, count: int) -> Scanned:
        columns = []
        for index, (sql_type, kind) in enumerate(zip(self._types, self._kinds, strict=True)):
            ends, text = images.ends[index, :0], b""
            numbers = images.numbers[index, :count]
            if kind < codes.TEXT:
                numbers = numbers.copy()
            else:
                ends = images.ends[index, : count + 1].copy()
                text = images.texts[self._source.text_rows[index], : ends[-1]].tobytes()
            valid = images.valid[index, :count].astype(bool)
            column = ScannedColumn(sql_type, valid, numbers, ends, text)
            if kind == codes.TEXT:
                column = self._label(column, self._source.used[index], images, count)
            if kind >= codes.TEXT:
                column = column._replace(
                    numbers=numbers[:0],
                    is_latin1=kind == codes.BINARY and self._rules.binary_is_latin1,
                    is_number=sql_type.kind is Kind.FLOAT and self._rules.format != codes.CANAL,
                    may_be_base64=kind == codes.WIDE and self._encodings[index] != codes.AS_NUMBER,
                )
            columns.append(column)
        return Scanned(
            images.outcomes,
            images.es,
            images.ts,
            images.ids,
            images.signs[:count].copy(),
            images.owners[:count].copy(),
            columns,
        )

    def _label(
        self, column: ScannedColumn, declared: int, images: kernel.Images, count: int
    ) -> ScannedColumn:
        """Return a column of texts with labels in place of their numbers."""
        known = [own[declared] if own else None for _, own in self._labels]
        if not any(known):
            return column
        texts, of_images = column.cut(), images.labels[images.owners[:count]]
        for index, labels in enumerate(known):
            if labels is None:
                continue
            numbers = np.where((of_images == index) & column.valid, column.numbers, -1)
            names = {
                each: labels.find(each).encode()
                for each in np.unique(numbers).tolist()
                if each >= 0
            }
            for place in np.flatnonzero(numbers >= 0).tolist():
                texts[place] = names[numbers[place]]
        ends = np.cumsum([0, *map(len, texts)]).astype(np.int32)
        return column._replace(text=b"".join(texts), ends=ends)


@cache
def load_scanner() -> bool:
    """Compile the kernel or load it from its cache, once; return False if that fails.

    numba raises what it meets in a damaged cache or on a full disk. The general path needs none of
    it, so no failure may stop a job."""
    if not AVAILABLE:
        return False
    column = Column("n", SqlType.parse("INT"))
    tables = TableFilter(None, None)
    rules = ScanRules(codes.CANAL, tables, tables.read_header, bytes_max=1)
    scanner = MessageScanner((column,), (0,), rules)
    try:
        scanner.scan([b""])
    except Exception:
        return False
    return True


def can_scan(columns: tuple[Column, ...], format: int) -> bool:
    """Return whether the kernel knows the types of all columns, and can be loaded."""
    known = (is_scannable(each.type, format) for each in columns)
    return bool(columns) and all(known) and load_scanner()


def _bounds(sql_type: SqlType) -> tuple[int, int]:
    if sql_type.integer:
        return integer_range(sql_type)
    if sql_type.kind is Kind.DATE:
        return DAYS
    if sql_type.kind in _INSTANTS:
        return _NANOSECONDS if sql_type.textual_time else MICROSECONDS
    if sql_type.floating:
        return _FLOAT_POWERS if sql_type.kind is Kind.FLOAT else _DOUBLE_POWERS
    digits = min(sql_type.precision or 0, fields.DIGITS_MAX)
    return -(10**digits) + 1, 10**digits - 1


def _source(columns: tuple[Column, ...], used: tuple[int, ...], rules: ScanRules) -> kernel.Source:
    names = [f'"{column.name}"'.encode() for column in columns]
    declared = np.zeros(len(columns), fields.COLUMN)
    declared["name_at"], declared["name_size"] = _starts(names)[:-1], list(map(len, names))
    for index, column in enumerate(columns):
        own = declared[index : index + 1]
        _declare(own, column.type, rules)
        if rules.format == codes.DEBEZIUM:
            _declare_debezium(own, column.type, rules.encodings[index])
        digits = column.type.precision or 0
        if own["kind"] == codes.DECIMAL and digits > fields.DIGITS_MAX:
            own["kind"], own["unit"] = codes.WIDE, digits - (column.type.scale or 0)
            own["low"] = octets = (10**digits - 1).bit_length() // 8
            own["high"] = 10**digits >> 8 * (octets + 1 - 8)
    is_text = declared["kind"][list(used)] >= codes.TEXT
    read = dict(zip(rules.names, ("by_database", "by_table"), strict=True))
    of_source = np.zeros(1, kernel.RULES)
    of_source["format"], of_source["last_images"] = rules.format, rules.last_images
    of_source["missing_is_null"] = rules.missing_is_null
    of_source["has_texts"] = any(column.type.kind is Kind.STRING for column in columns)
    for name in rules.tables.names_read:
        of_source[read[name]] = True
    return kernel.Source(
        of_source,
        declared,
        _pad(b"".join(names)),
        np.array(used, np.int64),
        np.where(is_text, np.cumsum(is_text) - 1, -1),
        np.zeros(0, kernel.KNOWN_TABLE),
        _pad(b""),
        np.zeros(1, kernel.LABELS),
        np.full((1, len(columns)), -1, np.int64),
        _pad(b""),
    )


def _declare(declared: Array, sql_type: SqlType, rules: ScanRules) -> None:
    """Set how a column is written, in messages that write it as SQL does."""
    declared["kind"] = codes.INTEGER if sql_type.integer else KINDS[sql_type.kind]
    declared["low"], declared["high"] = _bounds(sql_type)
    declared["separator"] = ord("T" if rules.timestamp_format == "iso" else " ")
    if sql_type.kind is Kind.FLOAT:  # a number is read as a double first, and a text is not
        declared["encoding"] = STRING if rules.format == codes.CANAL else NUMBER
    elif sql_type.kind is Kind.BINARY:
        declared["encoding"] = codes.AS_LATIN1 if rules.binary_is_latin1 else codes.AS_BASE64
    elif sql_type.kind is Kind.DECIMAL:
        declared["scale"] = sql_type.scale or 0
    elif sql_type.kind in _INSTANTS:
        declared["scale"] = sql_type.kind is Kind.TIMESTAMP_LTZ
        declared["encoding"] = 9 if sql_type.textual_time else 6


def _declare_debezium(declared: Array, sql_type: SqlType, encoding: Encoding) -> None:
    """Set how Debezium writes a column."""
    declared["guarded"] = 1
    if sql_type.kind is Kind.DECIMAL:
        declared["encoding"] = _ENCODINGS[encoding.form]
    elif sql_type.kind is Kind.DATE:
        declared["unit"] = 1
    elif sql_type.kind in _INSTANTS:
        units = UNITS_NS if sql_type.textual_time else _UNITS
        declared["unit"] = units.get(encoding.form, 0)
        as_text = sql_type.kind is Kind.TIMESTAMP_LTZ or encoding.form == "iso"
        declared["separator"], declared["scale"] = ord("T") if as_text else 0, 1


def _pad(text: bytes) -> Array:
    return np.frombuffer(text + bytes(PAD), np.uint8)


def _starts(names: Sequence[bytes]) -> Array:
    return np.cumsum([0, *map(len, names)]).astype(np.int64)
