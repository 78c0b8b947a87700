"""Find the members of a message of canal-json or maxwell-json.

canal     {"data":[{..},..],"old":[{..},..],"type":"UPDATE","isDdl":false,"es":..,"ts":..,
           "database":"shop","table":"product","id":..,"mysqlType":{"id":"bigint",..}}
maxwell   {"data":{..},"old":{..},"type":"update","ts":..,"database":..,"table":..}
               │
               ▼
tokens of `data` and `old`, and the numbers of a message: sign, rows, times, names
"""

from __future__ import annotations

import numpy as np

from jobs.core.kernels.codes import CANAL, MAXWELL, NO_TIME, TEXT
from jobs.core.kernels.compiled import Array, inlined, keep_apart
from jobs.core.kernels.field_values import parse_digits
from jobs.core.kernels.json_bytes import (
    ESCAPED,
    FALSE,
    MASK_2,
    MASK_3,
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
from jobs.core.kernels.row_objects import find_column, find_row, find_rows

# What is found in a message: the indexes in an array of integers.
MET = 0  # a bit for each member
SIGN = 1  # of its rows; 0 for an update, OTHER_TYPE for what has none
ROWS, OLD_ROWS = 2, 3  # of `data` and `old`; -1 if these are no rows
ES, TS = 4, 5
DATABASE_AT, DATABASE_SIZE, TABLE_AT, TABLE_SIZE = 6, 7, 8, 9
ID = 10  # of the batch in which canal sent it
TYPES_AT, TYPES_SIZE = 11, 12  # of `mysqlType`; of size 0 if no STRING column may have labels
MESSAGE_SIZE = 13

OTHER_TYPE = -9
MEMBERS_REMEMBERED = 48
_TYPES, _LABELLED = MEMBERS_REMEMBERED, MEMBERS_REMEMBERED + 1
SEEN_SIZE = MEMBERS_REMEMBERED + 2  # then `mysqlType`, and whether it may have labels
# The members that are read, and the bits for them.
DATA, OLD, TYPE, _DDL, ES_MEMBER, TS_MEMBER, TABLE, DATABASE = range(8)
_COLUMN_TYPES, _ID_MEMBER, OTHER = range(8, 11)
_KEY_SIZES = np.array([6, 5, 6, 7, 4, 4, 7, 10, 11, 4], np.int64)

_DATA_KEY, _OLD_KEY, _TYPE_KEY = word_of(b'"data"'), word_of(b'"old"'), word_of(b'"type"')
_DDL_KEY, _ES_KEY, _TS_KEY = word_of(b'"isDdl"'), word_of(b'"es"'), word_of(b'"ts"')
_TABLE_KEY, _ID_KEY = word_of(b'"table"'), word_of(b'"id"')
_DATABASE_KEY, _DATABASE_END = word_of(b'"databas'), word_of(b'e"')
_TYPES_KEY, _TYPES_END = word_of(b'"mysqlTy'), word_of(b'pe"')
_ENUM, _SET = word_of(b"enum("), word_of(b"set(")
_BLANKS = word_of(b"     ")  # the bits of lower case; all other characters here have them too
_INSERT, _UPDATE = word_of(b'INSERT"'), word_of(b'UPDATE"')
_DELETE, _INIT = word_of(b'DELETE"'), word_of(b'INIT"')
_LOWER_CASE = word_of(b"      ")  # the bits of these six letters
_BOOTSTRAP, _BOOTSTRAP_END = word_of(b"bootstra"), word_of(b"p-insert")
_SECOND_MS = 1_000
_SECONDS_MAX = (2**63 - 1) // _SECOND_MS


@inlined
def _known_member(buffer: Array, at: int) -> int:
    """Return the member whose key begins here, or OTHER."""
    word = load_word(buffer, at)
    if word & MASK_6 == _DATA_KEY:
        return DATA
    if word & MASK_5 == _OLD_KEY:
        return OLD
    if word & MASK_6 == _TYPE_KEY:
        return TYPE
    if word & MASK_7 == _DDL_KEY:
        return _DDL
    if word & MASK_4 == _ES_KEY:
        return ES_MEMBER
    if word & MASK_4 == _TS_KEY:
        return TS_MEMBER
    if word & MASK_7 == _TABLE_KEY:
        return TABLE
    if word == _DATABASE_KEY and load_word(buffer, at + 8) & MASK_2 == _DATABASE_END:
        return DATABASE
    if word == _TYPES_KEY and load_word(buffer, at + 8) & MASK_3 == _TYPES_END:
        return _COLUMN_TYPES
    if word & MASK_4 == _ID_KEY:
        return _ID_MEMBER
    return OTHER


@inlined
def _read_type(buffer: Array, at: int, message: Array, format: int) -> int:
    """Set the sign of the rows; return the end of `type`."""
    word = load_word(buffer, at + 1) if byte_at(buffer, at) == 34 else _INIT ^ _INIT
    message[SIGN] = OTHER_TYPE
    if format == MAXWELL:
        if word == _BOOTSTRAP and load_word(buffer, at + 9) == _BOOTSTRAP_END:
            if byte_at(buffer, at + 17) == 34:
                message[SIGN] = 1
                return at + 18
            return value_end(buffer, at)
        if word & _LOWER_CASE != _LOWER_CASE:
            return value_end(buffer, at)
        word ^= _LOWER_CASE
    if word & MASK_7 == _INSERT:
        message[SIGN] = 1
    elif word & MASK_7 == _UPDATE:
        message[SIGN] = 0
    elif word & MASK_7 == _DELETE:
        message[SIGN] = -1
    elif format == CANAL and word & MASK_5 == _INIT:
        message[SIGN] = 1
        return at + 6
    else:
        return value_end(buffer, at)
    return at + 8


@inlined
def read_time(buffer: Array, at: int) -> tuple[int, int]:
    """Return the end of `es`, `ts` or `id`, or -1, and its number."""
    end, kind = scalar_end(buffer, at)
    if kind == NULL:
        return end, NO_TIME
    negative = 1 if byte_at(buffer, at) == 45 else 0
    number = parse_digits(buffer, at + negative, end - at - negative)
    if end < 0 or kind != NUMBER or number < 0:
        return -1, NO_TIME
    return end, -number if negative else number


@inlined
def read_name(buffer: Array, at: int) -> int:
    """Return the end of the name of a table or database, or -1."""
    end, kind = scalar_end(buffer, at)
    return end if kind == STRING else -1


@inlined
def _read_member(
    buffer: Array,
    at: int,
    member: int,
    format: int,
    columns: Array,
    names: Array,
    data: Array,
    old: Array,
    message: Array,
) -> int:
    """Read the value of a member; return its end, or -1."""
    if member == DATA or member == OLD:
        tokens = data if member == DATA else old
        if format == CANAL:
            end, rows = find_rows(buffer, at, columns, names, tokens)
        else:
            end, rows = find_row(buffer, at, columns, names, tokens)
        message[ROWS if member == DATA else OLD_ROWS] = rows
        return end if end >= 0 else value_end(buffer, at)
    if member == TYPE:
        return _read_type(buffer, at, message, format)
    if member == _DDL:
        end, kind = scalar_end(buffer, at)
        return end if kind == FALSE or kind == NULL else -1
    if member == ES_MEMBER or member == _ID_MEMBER:
        end, message[ES if member == ES_MEMBER else ID] = read_time(buffer, at)
    elif member == TS_MEMBER and format == MAXWELL:
        end, seconds = read_time(buffer, at)
        if seconds == NO_TIME:
            return end
        if not -_SECONDS_MAX <= seconds <= _SECONDS_MAX:
            return -1
        message[ES] = seconds * _SECOND_MS
    elif member == TS_MEMBER:
        end, message[TS] = read_time(buffer, at)
    elif member == TABLE:
        end = read_name(buffer, at)
        message[TABLE_AT], message[TABLE_SIZE] = at, end - at
    else:
        end = read_name(buffer, at)
        message[DATABASE_AT], message[DATABASE_SIZE] = at, end - at
    return end


@inlined
def _same_as_before(buffer: Array, at: int, end: int, seen: Array, number: int) -> int:
    """Return the end of a member that the message before has too, byte for byte; else -1."""
    size = seen[number, 1]
    if 0 < size < end - at and equal_bytes(buffer, at, buffer, seen[number, 0], size):
        follows = byte_at(buffer, at + size)
        if follows == 44 or follows == 125:
            return at + int(size)
    return -1


@inlined
def _may_have_labels(buffer: Array, at: int) -> bool:
    """Return whether the text of a column type, behind its quote, may be an ENUM or a SET."""
    for index in range(5):
        byte = byte_at(buffer, at + index)
        if byte == 34:
            return False
        if byte == 92:  # an escape, which could be one of its letters
            return True
    word = load_word(buffer, at) | _BLANKS
    return bool(word & MASK_5 == _ENUM or word & MASK_4 == _SET)


@keep_apart
def _skip_types(
    buffer: Array, at: int, end: int, columns: Array, names: Array, seen: Array, message: Array
) -> int:
    """Return the end of `mysqlType`, or -1; set where it is if it may have labels."""
    last = _same_as_before(buffer, at, end, seen, _TYPES)
    if last >= 0:
        message[TYPES_AT], message[TYPES_SIZE] = at, (last - at) * seen[_LABELLED, 0]
    if last >= 0 or byte_at(buffer, at) != 123:
        return last if last >= 0 else value_end(buffer, at)
    start, labelled = at, 0
    at = skip_blanks(buffer, at + 1)
    if byte_at(buffer, at) == 125:
        return at + 1
    expected = 0
    while True:
        column = find_column(buffer, at, columns, names, expected)
        if column < 0:
            if byte_at(buffer, at) != 34 or string_end(buffer, at + 1)[1] == ESCAPED:
                return -1
        elif column + 1 < len(columns):
            expected = column + 1
        at = key_end(buffer, at)
        if at < 0:
            return -1
        if column >= 0 and columns[column]["kind"] == TEXT and byte_at(buffer, at) == 34:
            if _may_have_labels(buffer, at + 1):
                labelled = 1
        at = value_end(buffer, at)
        if at < 0:
            return -1
        at = skip_blanks(buffer, at)
        byte = byte_at(buffer, at)
        if byte == 125:
            seen[_TYPES, 0], seen[_TYPES, 1], seen[_LABELLED, 0] = start, at + 1 - start, labelled
            message[TYPES_AT], message[TYPES_SIZE] = start, (at + 1 - start) * labelled
            return at + 1
        if byte != 44:
            return -1
        at = skip_blanks(buffer, at + 1)


@keep_apart
def skip_member(buffer: Array, at: int, end: int, seen: Array, number: int) -> int:
    """Skip a member that no rule reads; return its end, or -1.

    `seen` has such members of the message before; most are repeated, byte for byte."""
    last = _same_as_before(buffer, at, end, seen, number)
    if last >= 0:
        return last
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
def begin_message(message: Array) -> None:
    """Forget the message before."""
    message[MET] = 0
    message[SIGN] = OTHER_TYPE
    message[ROWS] = message[OLD_ROWS] = -1
    message[ES] = message[TS] = message[ID] = NO_TIME
    message[TYPES_SIZE] = 0


@inlined
def read_message(
    buffer: Array,
    at: int,
    end: int,
    format: int,
    has_texts: bool,
    columns: Array,
    names: Array,
    data: Array,
    old: Array,
    seen: Array,
    message: Array,
) -> bool:
    """Find the members of a message; return False if it is unusual.

    `has_texts` says whether a column is a STRING."""
    begin_message(message)
    at = skip_blanks(buffer, at)
    if byte_at(buffer, at) != 123:
        return False
    skipped = 0
    while True:
        at = skip_blanks(buffer, at + 1)
        member = _known_member(buffer, at)
        if format == MAXWELL and member in (_DDL, ES_MEMBER, _ID_MEMBER):
            member = OTHER
        if member == _COLUMN_TYPES and (format == MAXWELL or not has_texts):
            member = OTHER
        if member == OTHER:
            if skipped == MEMBERS_REMEMBERED:
                return False
            at = skip_member(buffer, at, end, seen, skipped)
            skipped += 1
        else:
            at = skip_blanks(buffer, at + _KEY_SIZES[member])
            if message[MET] >> member & 1 or byte_at(buffer, at) != 58:
                return False
            message[MET] |= 1 << member
            at = skip_blanks(buffer, at + 1)
            if member == _COLUMN_TYPES:
                at = _skip_types(buffer, at, end, columns, names, seen, message)
            else:
                at = _read_member(buffer, at, member, format, columns, names, data, old, message)
        if at < 0:
            return False
        at = skip_blanks(buffer, at)
        byte = byte_at(buffer, at)
        if byte == 125:
            return skip_blanks(buffer, at + 1) == end
        if byte != 44:
            return False
