"""Find the members of a message of debezium-json without a schema.

{"before": {..} or null, "after": {..} or null, "op": "u",
 "source": {"db": "shop", "table": "product", "ts_ms": .., ..}, "ts_ms": ..}
      │
      ▼
tokens of `after` and `before`, and the numbers of a message
"""

from __future__ import annotations

from jobs.core.kernels.compiled import Array, inlined
from jobs.core.kernels.json_bytes import (
    MASK_4,
    MASK_7,
    NULL_WORD,
    byte_at,
    load_word,
    skip_blanks,
    value_end,
    word_of,
)
from jobs.core.kernels.message_members import (
    DATA,
    DATABASE,
    DATABASE_AT,
    DATABASE_SIZE,
    ES,
    ES_MEMBER,
    MEMBERS_REMEMBERED,
    MET,
    OLD,
    OLD_ROWS,
    OTHER,
    OTHER_TYPE,
    ROWS,
    SIGN,
    TABLE,
    TABLE_AT,
    TABLE_SIZE,
    TS,
    TS_MEMBER,
    TYPE,
    begin_message,
    read_name,
    read_time,
    skip_member,
)
from jobs.core.kernels.row_objects import find_row

_SOURCE = OTHER  # a bit for one more member
_BEFORE, _AFTER, _OP = word_of(b'"before"'), word_of(b'"after"'), word_of(b'"op"')
_SOURCE_KEY, _TS_MS, _DB = word_of(b'"source"'), word_of(b'"ts_ms"'), word_of(b'"db"')
_TABLE_KEY, _PAYLOAD = word_of(b'"table"'), word_of(b'"payload')
_NO_MEMBER = -1


@inlined
def _known_member(buffer: Array, at: int) -> tuple[int, int]:
    """Return the member of a message whose key begins here, and the size of the key."""
    word = load_word(buffer, at)
    if word == _BEFORE:
        return OLD, 8
    if word & MASK_7 == _AFTER:
        return DATA, 7
    if word & MASK_4 == _OP:
        return TYPE, 4
    if word == _SOURCE_KEY:
        return _SOURCE, 8
    if word & MASK_7 == _TS_MS:
        return TS_MEMBER, 7
    return _NO_MEMBER, 0


@inlined
def _known_stamp(buffer: Array, at: int) -> tuple[int, int]:
    """Return the member of `source` whose key begins here, and the size of the key."""
    word = load_word(buffer, at)
    if word & MASK_4 == _DB:
        return DATABASE, 4
    if word & MASK_7 == _TABLE_KEY:
        return TABLE, 7
    if word & MASK_7 == _TS_MS:
        return ES_MEMBER, 7
    return _NO_MEMBER, 0


@inlined
def _read_op(buffer: Array, at: int, message: Array) -> int:
    """Set the sign of the rows; return the end of `op`."""
    byte = byte_at(buffer, at + 1)
    if byte_at(buffer, at) != 34 or byte == 0 or byte_at(buffer, at + 2) != 34:
        return value_end(buffer, at)
    if byte == 99 or byte == 114:  # c, r
        message[SIGN] = 1
    elif byte == 117:  # u
        message[SIGN] = 0
    elif byte == 100:  # d
        message[SIGN] = -1
    else:
        return value_end(buffer, at)
    return at + 3


@inlined
def _begin_value(buffer: Array, at: int, member: int, size: int, message: Array) -> int:
    """Return where the value of a member begins; -1 if the member was met before."""
    at = skip_blanks(buffer, at + size)
    if message[MET] >> member & 1 or byte_at(buffer, at) != 58:
        return -1
    message[MET] |= 1 << member
    return skip_blanks(buffer, at + 1)


@inlined
def _read_source(
    buffer: Array, at: int, end: int, seen: Array, skipped: int, message: Array
) -> tuple[int, int]:
    """Read `source`; return its end, or -1, and how many members were skipped so far."""
    if byte_at(buffer, at) != 123:
        return value_end(buffer, at), skipped
    inside = skip_blanks(buffer, at + 1)
    if byte_at(buffer, inside) == 125:
        return inside + 1, skipped
    while True:
        at = skip_blanks(buffer, at + 1)
        member, size = _known_stamp(buffer, at)
        if member == _NO_MEMBER:
            if skipped == MEMBERS_REMEMBERED:
                return -1, skipped
            at = skip_member(buffer, at, end, seen, skipped)
            skipped += 1
        else:
            at = _begin_value(buffer, at, member, size, message)
            if at < 0:
                return -1, skipped
            start = at
            if member == ES_MEMBER:
                at, message[ES] = read_time(buffer, at)
            elif member == TABLE:
                at = read_name(buffer, at)
                message[TABLE_AT], message[TABLE_SIZE] = start, at - start
            else:
                at = read_name(buffer, at)
                message[DATABASE_AT], message[DATABASE_SIZE] = start, at - start
        if at < 0:
            return -1, skipped
        at = skip_blanks(buffer, at)
        byte = byte_at(buffer, at)
        if byte == 125:
            return at + 1, skipped
        if byte != 44:
            return -1, skipped


@inlined
def _find_image(
    buffer: Array, at: int, columns: Array, names: Array, tokens: Array
) -> tuple[int, int]:
    """Return the end of `before` or `after`, and how many rows it is; -1 for something else."""
    if load_word(buffer, at) & MASK_4 == NULL_WORD:
        return at + 4, 0
    end, rows = find_row(buffer, at, columns, names, tokens)
    return (end, rows) if end >= 0 else (value_end(buffer, at), -1)


@inlined
def read_debezium(
    buffer: Array,
    at: int,
    end: int,
    last_images: bool,
    columns: Array,
    names: Array,
    after: Array,
    before: Array,
    seen: Array,
    message: Array,
) -> bool:
    """Find the members of a message; return False if it is unusual.

    The rows of a delete are in `before`, all others in `after`."""
    begin_message(message)
    message[ROWS] = message[OLD_ROWS] = 0
    at = skip_blanks(buffer, at)
    if byte_at(buffer, at) != 123:
        return False
    skipped = 0
    while True:
        at = skip_blanks(buffer, at + 1)
        member, size = _known_member(buffer, at)
        if member == _NO_MEMBER:
            if skipped == MEMBERS_REMEMBERED or load_word(buffer, at) == _PAYLOAD:
                return False
            at = skip_member(buffer, at, end, seen, skipped)
            skipped += 1
        else:
            at = _begin_value(buffer, at, member, size, message)
            if at < 0:
                return False
            if member == DATA:
                at, message[ROWS] = _find_image(buffer, at, columns, names, after)
            elif member == OLD:
                at, message[OLD_ROWS] = _find_image(buffer, at, columns, names, before)
            elif member == TYPE:
                at = _read_op(buffer, at, message)
            elif member == TS_MEMBER:
                at, message[TS] = read_time(buffer, at)
            else:
                at, skipped = _read_source(buffer, at, end, seen, skipped, message)
        if at < 0:
            return False
        at = skip_blanks(buffer, at)
        byte = byte_at(buffer, at)
        if byte == 125:
            break
        if byte != 44:
            return False
    if message[SIGN] == -1:
        message[ROWS] = message[OLD_ROWS]
    elif message[SIGN] == 0 and message[OLD_ROWS] == 0 and last_images:
        message[SIGN] = 1
    if message[ROWS] == 0:  # the row is missing
        message[SIGN] = OTHER_TYPE
    return skip_blanks(buffer, at + 1) == end
