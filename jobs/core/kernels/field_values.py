"""Field values for the kernels: from a scalar's bytes to a number, or from escapes to UTF-8.

    "12.50"  DECIMAL(6, 2) ─► 1250      "2026-01-02"  DATE ─► 20455       "\\u00fc" ─► C3 BC

Only what databases usually write is read here: a value that is written in another way is not
`converted`, and whoever asked takes the slow and exact way.
"""

from __future__ import annotations

import numpy as np

from jobs.core.kernels.checked_texts import (
    count_digits,
    is_base64,
    is_decimal,
    is_floating,
    is_latin1,
    is_placeholder,
    is_text,
    time_size,
)
from jobs.core.kernels.codes import (
    AS_BASE64,
    AS_EITHER,
    AS_LATIN1,
    AS_NUMBER,
    BINARY,
    BOOLEAN,
    DATE,
    DECIMAL,
    INTEGER,
    NO_TIME,
    TEXT,
    TIME,
    TIMESTAMP,
    WIDE,
)
from jobs.core.kernels.compiled import Array, inlined, keep_apart
from jobs.core.kernels.json_bytes import (
    ESCAPED,
    FALSE_WORD,
    MASK_4,
    NULL,
    NUMBER,
    STRING,
    TRUE_WORD,
    U,
    byte_at,
    hex_digit,
    load_word,
)

COLUMN = np.dtype(  # a declared column; numba passes one array faster than a tuple of many
    [
        ("name_at", "i8"),  # where its name in quotes begins among the names
        ("name_size", "i8"),
        ("kind", "i8"),
        ("low", "i8"),  # the smallest and the largest number; of a FLOATING the powers of ten
        ("high", "i8"),  # and of a WIDE the octets that always fit, and what bounds one more
        ("scale", "i8"),  # digits after the point; of a TIMESTAMP whether it ends with Z
        ("separator", "i8"),  # of a TIMESTAMP, between day and time; 0 if it is no text
        # Of a DATE or TIMESTAMP as a number, in days or fractions of a second; below 0 so many are
        # one; of a WIDE the digits before the point.
        ("unit", "i8"),
        # Of a DECIMAL as text, of a BINARY; of a FLOATING its token, or 0; of a TIMESTAMP how many
        # digits the fraction of a second has.
        ("encoding", "i8"),
        ("guarded", "i8"),  # of a TEXT or a BINARY, whether Debezium may have left it out
    ]
)
TOKEN = np.dtype([("kind", "i8"), ("at", "i8"), ("size", "i8"), ("value", "i8")])

_POWERS = np.array([10**digits for digits in range(19)], dtype=np.int64)
DIGITS_MAX = 18  # that always fit 64 bits
LABEL_MAX = 10**DIGITS_MAX - 1
_TENTH = (2**63 - 1) // 10
_NANO_DAYS = 106_751  # from 1970 on, in which nanoseconds fit 64 bits
_LOWER_CASE = U(0x20202020)


@inlined
def parse_digits(buffer: Array, at: int, size: int) -> int:
    """Return the number that so many digits are, or -1; at most 18."""
    if size < 1 or size > DIGITS_MAX:
        return -1
    number = 0
    for index in range(at, at + size):
        byte = byte_at(buffer, index)
        if not 48 <= byte <= 57:
            return -1
        number = number * 10 + (byte - 48)
    return number


@inlined
def _point_number(buffer: Array, at: int, size: int) -> tuple[int, int, int]:
    """Return the digits of a number as one integer, how many they are, how many after the point.

    The count is -1 if it is no such number. The sign is the caller's."""
    number = 0
    count = 0
    fraction = -1
    for index in range(at, at + size):
        byte = byte_at(buffer, index)
        if byte == 46 and fraction < 0 and count > 0:
            fraction = 0
        elif 48 <= byte <= 57 and count < DIGITS_MAX:
            number = number * 10 + (byte - 48)
            count += 1
            if fraction >= 0:
                fraction += 1
        else:
            return 0, -1, 0
    if count == 0 or fraction == 0:
        return 0, -1, 0
    return number, count, max(fraction, 0)


@inlined
def _day(buffer: Array, at: int) -> int:
    """Return YYYY-MM-DD as days since 1970-01-01, or NO_TIME."""
    year, month, day = (
        parse_digits(buffer, at, 4),
        parse_digits(buffer, at + 5, 2),
        parse_digits(buffer, at + 8, 2),
    )
    dashes = byte_at(buffer, at + 4) == 45 and byte_at(buffer, at + 7) == 45
    if not dashes or year < 1 or not 1 <= month <= 12 or day < 1:
        return NO_TIME
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    last = 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31
    if month == 2:
        last = 29 if leap else 28
    if day > last:
        return NO_TIME
    # The year begins in March, so that a leap day is its last one.
    shifted = year - 1 if month <= 2 else year
    in_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400 + in_year - 719_468


@inlined
def _time_of_day(buffer: Array, at: int) -> int:
    """Return HH:MM:SS as seconds, or -1."""
    hour, minute = parse_digits(buffer, at, 2), parse_digits(buffer, at + 3, 2)
    second = parse_digits(buffer, at + 6, 2)
    colons = byte_at(buffer, at + 2) == 58 and byte_at(buffer, at + 5) == 58
    if not colons or not (0 <= hour <= 23 and 0 <= minute <= 59 and 0 <= second <= 59):
        return -1
    return (hour * 60 + minute) * 60 + second


@inlined
def _moment(buffer: Array, at: int, size: int, separator: int, zone: int, digits: int) -> int:
    """Return a day and a time as fractions of seconds since 1970, or NO_TIME."""
    if zone:
        size -= 1
        if size < 19 or byte_at(buffer, at + size) != 90:
            return NO_TIME
    if size < 19 or size > 20 + digits or byte_at(buffer, at + 10) != separator:
        return NO_TIME
    day = _day(buffer, at)
    seconds = _time_of_day(buffer, at + 11)
    if day == NO_TIME or seconds < 0 or (digits == 9 and not -_NANO_DAYS <= day < _NANO_DAYS):
        return NO_TIME
    fraction = 0
    if size > 19:
        if size == 20 or byte_at(buffer, at + 19) != 46:
            return NO_TIME
        fraction = parse_digits(buffer, at + 20, size - 20)
        if fraction < 0:
            return NO_TIME
        fraction *= _POWERS[20 + digits - size]
    return int((day * 86_400 + seconds) * _POWERS[digits] + fraction)


@inlined
def _truth(buffer: Array, at: int, size: int) -> int:
    """Return 1, 0, or -1."""
    first = byte_at(buffer, at)
    if size == 1:
        return first - 48 if first == 48 or first == 49 else -1
    word = (load_word(buffer, at) & MASK_4) | _LOWER_CASE
    if size == 4:
        return 1 if word == TRUE_WORD else -1
    if size == 5 and word == FALSE_WORD and byte_at(buffer, at + 4) | 32 == 101:
        return 0
    return -1


@inlined
def _number(buffer: Array, columns: Array, column: int, at: int, size: int) -> int:
    """Return a scaled decimal, or NO_TIME."""
    kind = columns[column]["kind"]
    negative = size > 0 and byte_at(buffer, at) == 45
    if negative:
        at += 1
        size -= 1
    if kind == DECIMAL:
        number, count, fraction = _point_number(buffer, at, size)
        missing = columns[column]["scale"] - fraction
        if count < 0 or missing < 0 or count + missing > DIGITS_MAX:
            return NO_TIME
        number *= _POWERS[missing]
    else:
        return NO_TIME
    if negative:
        number = -number
    return number if columns[column]["low"] <= number <= columns[column]["high"] else NO_TIME


@inlined
def _whole(buffer: Array, at: int, size: int) -> tuple[bool, int]:
    """Return an integer of 64 bits; False if it is none."""
    negative = size > 0 and byte_at(buffer, at) == 45
    if negative:
        at += 1
        size -= 1
    first = min(size, DIGITS_MAX)
    number = parse_digits(buffer, at, first)
    if number < 0 or size > DIGITS_MAX + 1:
        return False, 0
    if negative:
        number = -number
    if size > first:
        last = parse_digits(buffer, at + first, 1)
        if last < 0 or not -_TENTH <= number <= _TENTH:
            return False, 0
        if (number == _TENTH and last > 7) or (number == -_TENTH and last > 8):
            return False, 0
        number = 10 * number + (-last if negative else last)
    return True, number


@inlined
def _is_whole(buffer: Array, columns: Array, tokens: Array, column: int, index: int) -> bool:
    """Set the value of an integer; return False if it is none, or beyond its type."""
    found, number = _whole(buffer, tokens[index]["at"], tokens[index]["size"])
    tokens[index]["value"] = number
    return bool(found and columns[column]["low"] <= number <= columns[column]["high"])


@inlined
def _since_1970(buffer: Array, at: int, size: int, columns: Array, column: int) -> int:
    """Return a number of Debezium as days or fractions of seconds since 1970, or NO_TIME."""
    unit, low, high = columns[column]["unit"], columns[column]["low"], columns[column]["high"]
    found, number = _whole(buffer, at, size)
    if unit == 0 or not found:
        return NO_TIME
    if unit < 0:
        if number % -unit != 0:
            return NO_TIME
        number //= -unit
    elif not -(high // unit) <= number <= high // unit:
        return NO_TIME
    else:
        number *= unit
    return number if low <= number <= high else NO_TIME


@inlined
def _sextet(byte: int) -> int:
    """Return the six bits of a character of base64, or -1."""
    if 65 <= byte <= 90:
        return byte - 65
    if 97 <= byte <= 122:
        return byte - 71
    if 48 <= byte <= 57:
        return byte + 4
    if byte == 43:
        return 62
    return 63 if byte == 47 else -1


@inlined
def _base64_number(buffer: Array, at: int, size: int) -> int:
    """Return up to eight bytes in base64 as a signed integer, or NO_TIME."""
    padding = 0
    while padding < 2 and padding < size and byte_at(buffer, at + size - 1 - padding) == 61:
        padding += 1
    octets = size // 4 * 3 - padding
    if size % 4 != 0 or not 1 <= octets <= 8:
        return NO_TIME
    number = 0
    for index in range(at, at + size - padding):
        six = _sextet(byte_at(buffer, index))
        if six < 0:
            return NO_TIME
        bits = 6
        if index == at + size - padding - 1 and padding > 0:
            bits = 6 - 2 * padding
            if six & ((1 << 2 * padding) - 1):
                return NO_TIME
            six >>= 2 * padding
        if index == at and six >= 32:  # the sign
            six -= 64
        number = (number << bits) | six
    return number


@inlined
def _fits_octets(buffer: Array, at: int, size: int, safe: int, limit: int) -> bool:
    """Return whether a text is base64 of a number that fits a DECIMAL.

    So many octets always do, and one more if the number of the first eight is below the limit."""
    if size == 0 or not is_base64(buffer, at, size):
        return False
    octets = size // 4 * 3
    if byte_at(buffer, at + size - 1) == 61:
        octets -= 2 if byte_at(buffer, at + size - 2) == 61 else 1
    if octets != safe + 1:
        return octets <= safe
    first = 0
    for index in range(at, at + 10):
        six = _sextet(byte_at(buffer, index))
        if index == at and six >= 32:  # the sign
            six -= 64
        first = (first << 6) | six
    first = (first << 4) | (_sextet(byte_at(buffer, at + 10)) >> 2)
    return -limit < first < limit


@inlined
def _may_be_base64(buffer: Array, at: int, size: int, encoding: int) -> int:
    """Return 1 if a DECIMAL is base64, 0 if it is a number, -1 if it can be both."""
    if encoding == AS_NUMBER or encoding == AS_BASE64:
        return encoding
    digits = True
    for index in range(at, at + size):
        byte = byte_at(buffer, index)
        if byte == 45 or byte == 46:  # of numbers only
            return 0
        if not (48 <= byte <= 57 or byte == 43):
            digits = False
    if not digits:
        return 1
    return 0 if size % 4 != 0 else -1


@inlined
def _label_number(buffer: Array, at: int, size: int, token: int) -> int:
    """Return the number of a label; -1 for a text that is none."""
    if token != STRING and token != NUMBER:
        return -1
    if size == 0 or count_digits(buffer, at, at + size) != size:
        return -1
    number = parse_digits(buffer, at, size)
    return number if number >= 0 else LABEL_MAX + 1


@keep_apart
def _is_usual_text(
    buffer: Array, columns: Array, tokens: Array, column: int, index: int, label_max: int
) -> bool:
    """Check a text; shorten that of a TIME, and set the number of a label."""
    token, encoding = tokens[index]["kind"], columns[column]["encoding"]
    kind, at, size = columns[column]["kind"], tokens[index]["at"], tokens[index]["size"]
    if columns[column]["guarded"] and is_placeholder(buffer, at, size):
        return False
    if kind == TEXT:
        if label_max >= 0:
            number = _label_number(buffer, at, size, token)
            tokens[index]["value"] = number
            if number > label_max:
                return False
        return is_text(buffer, at, size, token)
    if kind == BINARY and encoding == AS_LATIN1:
        return (token == STRING or token == ESCAPED) and is_latin1(buffer, at, size)
    if kind == BINARY:
        return token == STRING and is_base64(buffer, at, size)
    if kind == TIME:
        size = time_size(buffer, at, size) if token == STRING else -1
        tokens[index]["size"] = size
        return size >= 0 and _time_of_day(buffer, at) >= 0
    if token != STRING and token != NUMBER:
        return False
    low, high = columns[column]["low"], columns[column]["high"]
    if kind == WIDE:
        form = 0
        if encoding != AS_NUMBER:  # whoever converts it sees no token, only its text
            form = _may_be_base64(buffer, at, size, AS_EITHER if token == NUMBER else encoding)
        if form != 0:
            return form == 1 and token == STRING and _fits_octets(buffer, at, size, low, high)
        return is_decimal(buffer, at, size, columns[column]["unit"], columns[column]["scale"])
    return (encoding == 0 or encoding == token) and is_floating(buffer, at, size, low, high)


@inlined
def convert(
    buffer: Array, columns: Array, tokens: Array, column: int, index: int, label_max: int
) -> bool:
    """Set the value of a token; return False if its column does not usually look like that."""
    token = tokens[index]["kind"]
    if token == NULL:
        return True
    kind, at, size = columns[column]["kind"], tokens[index]["at"], tokens[index]["size"]
    if kind >= TEXT:
        return _is_usual_text(buffer, columns, tokens, column, index, label_max)
    value = NO_TIME
    if kind == BOOLEAN:
        if token != ESCAPED:
            value = _truth(buffer, at, size)
        if value < 0:
            return False
    elif token == STRING and kind == DATE:
        if size == 10:
            value = _day(buffer, at)
    elif token == STRING and kind == TIMESTAMP:
        zone, digits = columns[column]["scale"], columns[column]["encoding"]
        value = _moment(buffer, at, size, columns[column]["separator"], zone, digits)
    elif token == NUMBER and (kind == DATE or kind == TIMESTAMP):
        value = _since_1970(buffer, at, size, columns, column)
    elif token == STRING and kind == DECIMAL and columns[column]["encoding"] != AS_NUMBER:
        form = _may_be_base64(buffer, at, size, columns[column]["encoding"])
        if form == 0:
            value = _number(buffer, columns, column, at, size)
        elif form == 1:
            value = _base64_number(buffer, at, size)
            if not columns[column]["low"] <= value <= columns[column]["high"]:
                value = NO_TIME
    elif kind == INTEGER:
        return (token == STRING or token == NUMBER) and _is_whole(
            buffer, columns, tokens, column, index
        )
    elif token == STRING or token == NUMBER:
        value = _number(buffer, columns, column, at, size)
    tokens[index]["value"] = value
    return value != NO_TIME


@inlined
def unescape(buffer: Array, at: int, size: int, texts: Array, index: int, end: int) -> int:
    """Write a text with escapes as UTF-8; return where it ends."""
    last = at + size
    while at < last:
        byte = byte_at(buffer, at)
        at += 1
        if byte != 92:
            texts[index, U(end)] = byte
            end += 1
            continue
        byte = byte_at(buffer, at)
        at += 1
        if byte != 117:
            if byte == 98:
                byte = 8
            elif byte == 102:
                byte = 12
            elif byte == 110:
                byte = 10
            elif byte == 114:
                byte = 13
            elif byte == 116:
                byte = 9
            texts[index, U(end)] = byte
            end += 1
            continue
        code = _four_digits(buffer, at)
        at += 4
        if 0xD800 <= code < 0xDC00:
            code = 0x10000 + ((code - 0xD800) << 10) + (_four_digits(buffer, at + 2) - 0xDC00)
            at += 6
        end = _put_character(code, texts, index, end)
    return end


@inlined
def _four_digits(buffer: Array, at: int) -> int:
    code = 0
    for index in range(4):
        code = code * 16 + hex_digit(byte_at(buffer, at + index))
    return code


@inlined
def _put_character(code: int, texts: Array, index: int, end: int) -> int:
    if code < 0x80:
        texts[index, U(end)] = code
        return end + 1
    if code < 0x800:
        texts[index, U(end)] = 0xC0 | code >> 6
    else:
        if code < 0x10000:
            texts[index, U(end)] = 0xE0 | code >> 12
        else:
            texts[index, U(end)] = 0xF0 | code >> 18
            end += 1
            texts[index, U(end)] = 0x80 | code >> 12 & 0x3F
        end += 1
        texts[index, U(end)] = 0x80 | code >> 6 & 0x3F
    texts[index, U(end + 1)] = 0x80 | code & 0x3F
    return end + 2
