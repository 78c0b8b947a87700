"""Scan canal-json messages: from bytes to columns in one pass, with no object for a value.

    messages   {"data":[{"id":"7","cnt":"3"}],"type":"INSERT",..} 0 {"data": ..} 0     bytes
        │ scan           finds the members; of each row one token a declared column
        ▼
    tokens     [row * columns + column]    what it is, where it starts, its size
        │ convert_rows   integers, decimals, times, truths, doubles; a text stays where it is
        ▼
    images     signs [image]    owners [image], the message of each
               numbers [column, image]   valid [column, image]   texts [column, byte] and ends

A message is odd if anything in it is not as sources usually write it; the caller decodes an odd
message in another way. So nothing here refuses, and every doubt ends in ODD.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jobs.core.kernels.codes import FILTERED, GOOD, NO_TIME, ODD
from jobs.core.kernels.compiled import Array, inlined, kernel
from jobs.core.kernels.field_values import parse_digits
from jobs.core.kernels.json_bytes import (
    ESCAPED,
    FALSE,
    MASK_2,
    MASK_4,
    MASK_5,
    MASK_6,
    MASK_7,
    NULL,
    NUMBER,
    STRING,
    byte_at,
    equal_bytes,
    key_end,
    load_word,
    scalar_end,
    skip_blanks,
    string_end,
    value_end,
    word_of,
)
from jobs.core.kernels.row_objects import convert_rows, find_rows, put_image

# Why `scan` stopped.
DONE, FULL, NEW_TABLE = range(3)

RULES = np.dtype(  # of the source; an array of one
    [
        ("missing_is_null", "i8"),
        ("by_database", "i8"),  # whether the filter reads this name
        ("by_table", "i8"),
    ]
)
TABLE = np.dtype(  # a name that the caller has judged; both parts in quotes among the known names
    [
        ("database_at", "i8"),
        ("database_size", "i8"),
        ("table_at", "i8"),
        ("table_size", "i8"),
        ("wanted", "i8"),
    ]
)
# What is found in a message: the places in an array of integers.
MET = 0  # a bit for each member
SIGN = 1  # of its rows; 0 for an update, OTHER_TYPE for what has none
ROWS, OLD_ROWS = 2, 3  # of `data` and `old`; -1 if it is no array of rows
ES, TS = 4, 5
DATABASE_AT, DATABASE_SIZE, TABLE_AT, TABLE_SIZE = 6, 7, 8, 9
MESSAGE_SIZE = 10


class Source(NamedTuple):
    """What the scanner knows of a source."""

    rules: Array  # RULES [1]
    columns: Array  # COLUMN [column]
    names: Array  # uint8: of the columns, in quotes, one after another
    used: Array  # int64: the place of each used column among the declared ones
    text_rows: Array  # int64: the row of each used column among the texts; -1 for numbers
    tables: Array  # TABLE [known table]
    known_names: Array  # uint8


class Images(NamedTuple):
    """The output: row images, and what each message is."""

    signs: Array  # int8 [image]
    owners: Array  # int32 [image]
    numbers: Array  # int64 [column, image]
    valid: Array  # uint8 [column, image]
    texts: Array  # uint8 [text column, byte]
    ends: Array  # int32 [column, image + 1]
    outcomes: Array  # uint8 [message]
    es: Array  # int64 [message]
    ts: Array


OTHER_TYPE = -9
_MEMBERS_REMEMBERED = 24
_DATA, _OLD, _TYPE, _DDL, _ES, _TS, _TABLE, _DATABASE, _OTHER = range(9)
_KEY_SIZES = np.array([6, 5, 6, 7, 4, 4, 7, 10], np.int64)

_DATA_KEY, _OLD_KEY, _TYPE_KEY = word_of(b'"data"'), word_of(b'"old"'), word_of(b'"type"')
_DDL_KEY, _ES_KEY, _TS_KEY = word_of(b'"isDdl"'), word_of(b'"es"'), word_of(b'"ts"')
_TABLE_KEY = word_of(b'"table"')
_DATABASE_KEY, _DATABASE_END = word_of(b'"databas'), word_of(b'e"')
_INSERT, _UPDATE = word_of(b'INSERT"'), word_of(b'UPDATE"')
_DELETE, _INIT = word_of(b'DELETE"'), word_of(b'INIT"')


@inlined
def _known_member(buffer: Array, at: int) -> int:
    """Return the member whose key begins here, or OTHER_MEMBER."""
    word = load_word(buffer, at)
    if word & MASK_6 == _DATA_KEY:
        return _DATA
    if word & MASK_5 == _OLD_KEY:
        return _OLD
    if word & MASK_6 == _TYPE_KEY:
        return _TYPE
    if word & MASK_7 == _DDL_KEY:
        return _DDL
    if word & MASK_4 == _ES_KEY:
        return _ES
    if word & MASK_4 == _TS_KEY:
        return _TS
    if word & MASK_7 == _TABLE_KEY:
        return _TABLE
    if word == _DATABASE_KEY and load_word(buffer, at + 8) & MASK_2 == _DATABASE_END:
        return _DATABASE
    return _OTHER


@inlined
def _read_type(buffer: Array, at: int, message: Array) -> int:
    """Set the sign of the rows; return the end of `type`."""
    word = load_word(buffer, at + 1) if byte_at(buffer, at) == 34 else _INIT ^ _INIT
    message[SIGN] = OTHER_TYPE
    if word & MASK_7 == _INSERT:
        message[SIGN] = 1
    elif word & MASK_7 == _UPDATE:
        message[SIGN] = 0
    elif word & MASK_7 == _DELETE:
        message[SIGN] = -1
    elif word & MASK_5 == _INIT:
        message[SIGN] = 1
        return at + 6
    else:
        return value_end(buffer, at)
    return at + 8


@inlined
def _read_time(buffer: Array, at: int) -> tuple[int, int]:
    """Return the end of `es` or `ts`, or -1, and its milliseconds."""
    end, kind = scalar_end(buffer, at)
    if kind == NULL:
        return end, NO_TIME
    negative = 1 if byte_at(buffer, at) == 45 else 0
    number = parse_digits(buffer, at + negative, end - at - negative)
    if end < 0 or kind != NUMBER or number < 0:
        return -1, NO_TIME
    return end, -number if negative else number


@inlined
def _read_name(buffer: Array, at: int) -> int:
    """Return the end of the name of a table or database, or -1."""
    end, kind = scalar_end(buffer, at)
    return end if kind == STRING else -1


@inlined
def _read_member(
    buffer: Array,
    at: int,
    member: int,
    columns: Array,
    names: Array,
    data: Array,
    old: Array,
    message: Array,
) -> int:
    """Read the value of a member; return its end, or -1."""
    if member == _DATA:
        end, message[ROWS] = find_rows(buffer, at, columns, names, data)
        return end if end >= 0 else value_end(buffer, at)
    if member == _OLD:
        end, message[OLD_ROWS] = find_rows(buffer, at, columns, names, old)
        return end if end >= 0 else value_end(buffer, at)
    if member == _TYPE:
        return _read_type(buffer, at, message)
    if member == _DDL:
        end, kind = scalar_end(buffer, at)
        return end if kind == FALSE or kind == NULL else -1
    if member == _ES:
        end, message[ES] = _read_time(buffer, at)
    elif member == _TS:
        end, message[TS] = _read_time(buffer, at)
    elif member == _TABLE:
        end = _read_name(buffer, at)
        message[TABLE_AT], message[TABLE_SIZE] = at, end - at
    else:
        end = _read_name(buffer, at)
        message[DATABASE_AT], message[DATABASE_SIZE] = at, end - at
    return end


@inlined
def _skip_member(buffer: Array, at: int, end: int, seen: Array, number: int) -> int:
    """Skip a member that no rule reads; return its end, or -1.

    `seen` has such members of the message before; most are repeated, byte for byte."""
    size = seen[number, 1]
    if 0 < size < end - at and equal_bytes(buffer, at, buffer, seen[number, 0], size):
        follows = byte_at(buffer, at + size)
        if follows == 44 or follows == 125:
            return at + int(size)
    if byte_at(buffer, at) != 34:
        return -1
    name, kind = string_end(buffer, at + 1)
    if name < 0 or kind == ESCAPED:  # an escaped key could be one of those that are read
        return -1
    value = key_end(buffer, at)
    if value < 0:
        return -1
    last = value_end(buffer, value)
    seen[number, 0], seen[number, 1] = at, last - at
    return last


@inlined
def _read_message(
    buffer: Array,
    at: int,
    end: int,
    columns: Array,
    names: Array,
    data: Array,
    old: Array,
    seen: Array,
    message: Array,
) -> bool:
    """Find the members of a message; return False if it is odd."""
    message[MET] = 0
    message[SIGN] = OTHER_TYPE
    message[ROWS] = message[OLD_ROWS] = -1
    message[ES] = message[TS] = NO_TIME
    at = skip_blanks(buffer, at)
    if byte_at(buffer, at) != 123:
        return False
    skipped = 0
    while True:
        at = skip_blanks(buffer, at + 1)
        member = _known_member(buffer, at)
        if member == _OTHER:
            if skipped == _MEMBERS_REMEMBERED:
                return False
            at = _skip_member(buffer, at, end, seen, skipped)
            skipped += 1
        else:
            at = skip_blanks(buffer, at + _KEY_SIZES[member])
            if message[MET] >> member & 1 or byte_at(buffer, at) != 58:
                return False
            message[MET] |= 1 << member
            at = skip_blanks(buffer, at + 1)
            at = _read_member(buffer, at, member, columns, names, data, old, message)
        if at < 0:
            return False
        at = skip_blanks(buffer, at)
        byte = byte_at(buffer, at)
        if byte == 125:
            return skip_blanks(buffer, at + 1) == end
        if byte != 44:
            return False


@inlined
def _judge_table(buffer: Array, message: Array, rules: Array, tables: Array, names: Array) -> int:
    """Return 1 if the message's table is wanted, 0 if not, -1 if the caller has to judge it."""
    for place in range(len(tables)):
        table = tables[place]
        if rules[0]["by_database"]:
            at, size = message[DATABASE_AT], message[DATABASE_SIZE]
            if size != table["database_size"]:
                continue
            if not equal_bytes(buffer, at, names, table["database_at"], size):
                continue
        if rules[0]["by_table"]:
            at, size = message[TABLE_AT], message[TABLE_SIZE]
            if size != table["table_size"]:
                continue
            if not equal_bytes(buffer, at, names, table["table_at"], size):
                continue
        return np.int64(table["wanted"])  # type: ignore[return-value]
    return -1


@inlined
def _convert_message(
    buffer: Array,
    columns: Array,
    data: Array,
    old: Array,
    message: Array,
    missing_is_null: bool,
    double: Array,
) -> bool:
    """Convert the tokens of a message; return False if it is odd."""
    sign, rows = message[SIGN], message[ROWS]
    if sign == OTHER_TYPE or rows < 0 or (sign == 0 and message[OLD_ROWS] < rows):
        return False
    if not convert_rows(buffer, columns, data, rows, missing_is_null, double):
        return False
    return sign != 0 or convert_rows(buffer, columns, old, rows, True, double)


@kernel
def scan(
    buffer: Array,
    starts: Array,
    first: int,
    image: int,
    source: Source,
    data: Array,
    old: Array,
    images: Images,
) -> tuple[int, int, int]:
    """Scan messages from `first` on; return the next message and image, and why it stopped."""
    rules, columns, names, used, text_rows, tables, known_names = source
    signs, owners, numbers, valid, texts, ends, outcomes, es, ts = images
    seen = np.zeros((_MEMBERS_REMEMBERED, 2), np.int64)
    message = np.zeros(MESSAGE_SIZE, np.int64)
    double = np.zeros(1, np.float64)
    asked = rules[0]["by_table"] << _TABLE | rules[0]["by_database"] << _DATABASE
    missing_is_null = rules[0]["missing_is_null"] != 0
    for number in range(first, len(starts) - 1):
        outcomes[number] = ODD
        start, end = starts[number], starts[number + 1] - 1
        if not _read_message(buffer, start, end, columns, names, data, old, seen, message):
            continue
        if asked:
            if message[MET] & asked != asked:
                continue
            wanted = _judge_table(buffer, message, rules, tables, known_names)
            if wanted < 0:
                return number, image, NEW_TABLE
            if wanted == 0:
                outcomes[number] = FILTERED
                continue
        if not _convert_message(buffer, columns, data, old, message, missing_is_null, double):
            continue
        sign, rows = message[SIGN], message[ROWS]
        if image + 2 * rows > len(signs):
            return number, image, FULL
        for row in range(rows):
            for before in range(1 if sign == 0 else 0, -1, -1):
                signs[image] = sign if sign != 0 else 1 - 2 * before
                owners[image] = number
                put_image(
                    buffer,
                    columns,
                    used,
                    text_rows,
                    old,
                    data,
                    row,
                    before == 1,
                    image,
                    numbers,
                    valid,
                    texts,
                    ends,
                )
                image += 1
        outcomes[number] = GOOD
        es[number], ts[number] = message[ES], message[TS]
    return len(starts) - 1, image, DONE
