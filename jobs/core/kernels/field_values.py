"""Field values for the kernels: from a scalar's bytes to a number, or from escapes to UTF-8.

    "12.50"  DECIMAL(6, 2) ─► 1250      "2026-01-02"  DATE ─► 20455       "\\u00fc" ─► C3 BC

Only what databases usually write is read here: a value that is written in another way is not
`converted`, and whoever asked takes the slow and exact way.
"""

from __future__ import annotations

import numpy as np

from jobs.core.kernels.codes import (
    AS_BASE64,
    AS_NUMBER,
    BOOLEAN,
    DATE,
    DECIMAL,
    DOUBLE,
    INTEGER,
    NO_TIME,
    TEXT,
    TIME,
    TIMESTAMP,
)
from jobs.core.kernels.compiled import Array, inlined
from jobs.core.kernels.json_bytes import (
    ESCAPED,
    FALSE,
    FALSE_WORD,
    MASK_4,
    NULL,
    NUMBER,
    STRING,
    TRUE,
    TRUE_WORD,
    U,
    byte_at,
    hex_digit,
    load_word,
    word_of,
)

COLUMN = np.dtype(  # a declared column; numba passes one array faster than a tuple of many
    [
        ("name_at", "i8"),  # where its name in quotes begins among the names
        ("name_size", "i8"),
        ("kind", "i8"),
        ("low", "i8"),  # the smallest and the largest number
        ("high", "i8"),
        ("scale", "i8"),  # digits after the point; of a TIMESTAMP whether it ends with Z
        ("separator", "i8"),  # of a TIMESTAMP, between day and time; 0 if it is no text
        ("unit", "i8"),  # of a DATE or TIMESTAMP as a number, in days or us; -1000 for ns
        ("encoding", "i8"),  # of a DECIMAL as text
        ("guarded", "i8"),  # of a TEXT, whether Debezium may have left it out
    ]
)
TOKEN = np.dtype([("kind", "i8"), ("at", "i8"), ("size", "i8"), ("value", "i8")])

_POWERS = np.array([10**digits for digits in range(19)], dtype=np.int64)
DIGITS_MAX = 18  # that always fit 64 bits
_EXACT_DIGITS_MAX = 15  # of a number whose double is exact, and so is its quotient by 10**22
_LOWER_CASE = U(0x20202020)
# How the texts begin that Debezium writes for large values that did not change.
_UNAVAILABLE, _UNAVAILABLE_BASE64 = word_of(b"__debezi"), word_of(b"X19kZWJl")


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
def _moment(buffer: Array, at: int, size: int, separator: int, zone: int) -> int:
    """Return a day and a time as microseconds since 1970, or NO_TIME."""
    if zone:
        size -= 1
        if size < 19 or byte_at(buffer, at + size) != 90:
            return NO_TIME
    if size < 19 or size > 26 or byte_at(buffer, at + 10) != separator:
        return NO_TIME
    day = _day(buffer, at)
    seconds = _time_of_day(buffer, at + 11)
    if day == NO_TIME or seconds < 0:
        return NO_TIME
    micros = 0
    if size > 19:
        if size == 20 or byte_at(buffer, at + 19) != 46:
            return NO_TIME
        micros = parse_digits(buffer, at + 20, size - 20)
        if micros < 0:
            return NO_TIME
        micros *= _POWERS[26 - size]
    return (day * 86_400 + seconds) * 1_000_000 + micros


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
def _text_is_good(buffer: Array, at: int, size: int, kind: int) -> bool:
    """Return whether a token is a STRING as it is, and every surrogate has its other half."""
    if kind == STRING or kind == TRUE or kind == FALSE:
        return True
    if kind == NUMBER:
        sign = 1 if byte_at(buffer, at) == 45 else 0
        return parse_digits(buffer, at + sign, size - sign) >= 0 and not (
            sign == 1 and byte_at(buffer, at + 1) == 48
        )
    end = at + size
    while at < end:
        if byte_at(buffer, at) != 92:
            at += 1
            continue
        half = _surrogate(buffer, at)
        if half == 2 or (half == 1 and _surrogate(buffer, at + 6) != 2):
            return False
        at += 12 if half == 1 else 2
    return True


@inlined
def _surrogate(buffer: Array, at: int) -> int:
    """Return 1 for an escaped high surrogate, 2 for a low one, else 0."""
    if byte_at(buffer, at) != 92 or byte_at(buffer, at + 1) != 117:
        return 0
    if byte_at(buffer, at + 2) | 32 != 100:  # D
        return 0
    digit = hex_digit(byte_at(buffer, at + 3))
    if digit < 8:
        return 0
    return 1 if digit < 12 else 2


@inlined
def _number(buffer: Array, columns: Array, column: int, at: int, size: int, double: Array) -> int:
    """Return an integer, a scaled decimal, or the bits of a double; NO_TIME for none of them."""
    kind = columns[column]["kind"]
    negative = size > 0 and byte_at(buffer, at) == 45
    if negative:
        at += 1
        size -= 1
    if kind == INTEGER:
        number = parse_digits(buffer, at, size)
        if number < 0:
            return NO_TIME
    elif kind == DECIMAL:
        number, count, fraction = _point_number(buffer, at, size)
        missing = columns[column]["scale"] - fraction
        if count < 0 or missing < 0 or count + missing > DIGITS_MAX:
            return NO_TIME
        number *= _POWERS[missing]
    elif kind == DOUBLE:
        number, count, fraction = _point_number(buffer, at, size)
        if count < 0 or count > _EXACT_DIGITS_MAX:
            return NO_TIME
        # Both are exact doubles, so the quotient is the nearest one.
        exact = np.float64(number) / np.float64(_POWERS[fraction])
        double[0] = -exact if negative and number != 0 else exact
        return double.view(np.int64)[0]  # type: ignore[no-any-return]
    else:
        return NO_TIME
    if negative:
        number = -number
    return number if columns[column]["low"] <= number <= columns[column]["high"] else NO_TIME


@inlined
def _since_1970(buffer: Array, at: int, size: int, columns: Array, column: int) -> int:
    """Return a number of Debezium as days or microseconds since 1970, or NO_TIME."""
    unit = columns[column]["unit"]
    negative = size > 0 and byte_at(buffer, at) == 45
    number = parse_digits(buffer, at + 1, size - 1) if negative else parse_digits(buffer, at, size)
    if unit == 0 or number < 0:
        return NO_TIME
    if unit < 0:
        if number % -unit != 0:
            return NO_TIME
        number //= -unit
    elif number > columns[column]["high"] // unit:
        return NO_TIME
    else:
        number *= unit
    if negative:
        number = -number
    return number if columns[column]["low"] <= number <= columns[column]["high"] else NO_TIME


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
def _is_placeholder(buffer: Array, at: int, size: int) -> bool:
    """Return whether a text may be the one that Debezium writes for a value it does not know."""
    word = load_word(buffer, at)
    return (size == 28 and word == _UNAVAILABLE) or (size == 40 and word == _UNAVAILABLE_BASE64)


@inlined
def convert(
    buffer: Array, columns: Array, tokens: Array, column: int, index: int, double: Array
) -> bool:
    """Set the value of a token; return False if its column does not usually look like that."""
    token = tokens[index]["kind"]
    if token == NULL:
        return True
    kind, at, size = columns[column]["kind"], tokens[index]["at"], tokens[index]["size"]
    if kind == TEXT:
        if columns[column]["guarded"] and _is_placeholder(buffer, at, size):
            return False
        return _text_is_good(buffer, at, size, token)
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
        value = _moment(buffer, at, size, columns[column]["separator"], columns[column]["scale"])
    elif token == STRING and kind == TIME:
        return size == 8 and _time_of_day(buffer, at) >= 0
    elif token == NUMBER and (kind == DATE or kind == TIMESTAMP):
        value = _since_1970(buffer, at, size, columns, column)
    elif token == STRING and kind == DECIMAL and columns[column]["encoding"] != AS_NUMBER:
        form = _may_be_base64(buffer, at, size, columns[column]["encoding"])
        if form == 0:
            value = _number(buffer, columns, column, at, size, double)
        elif form == 1:
            value = _base64_number(buffer, at, size)
            if not columns[column]["low"] <= value <= columns[column]["high"]:
                value = NO_TIME
    elif token == STRING or token == NUMBER:
        value = _number(buffer, columns, column, at, size, double)
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
