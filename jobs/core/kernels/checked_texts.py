"""Texts that a scan checks and copies, and whoever asked converts, for all rows together.

    "2.5E-3"  DOUBLE ─► good, as it is        "12:00:00.500000"  TIME ─► good, the first 10 bytes
    "Ã¤"      BINARY ─► good: characters up to U+00FF, each of which is a byte

A text is good only if nothing can fail when it is converted, and no rule of the exact decoder would
read it in another way.
"""

from __future__ import annotations

from jobs.core.kernels.compiled import Array, inlined
from jobs.core.kernels.json_bytes import (
    FALSE,
    NUMBER,
    STRING,
    TRUE,
    byte_at,
    hex_digit,
    load_word,
    word_of,
)

_DIGITS_MAX = 18  # of an integer that stands for a text
_EXPONENT_DIGITS_MAX, _FLOATING_BYTES_MAX = 3, 40
_SECONDS_SIZE, _MICROS_SIZE = 8, 15  # of 12:38:35 and 12:38:35.123456
# How the texts begin that Debezium writes for large values that did not change.
_UNAVAILABLE, _UNAVAILABLE_BASE64 = word_of(b"__debezi"), word_of(b"X19kZWJl")


@inlined
def count_digits(buffer: Array, at: int, end: int) -> int:
    """Return how many digits begin here."""
    count = 0
    while at + count < end and 48 <= byte_at(buffer, at + count) <= 57:
        count += 1
    return count


@inlined
def is_text(buffer: Array, at: int, size: int, kind: int) -> bool:
    """Return whether a token is a STRING as it is, and every surrogate has its other half."""
    if kind == STRING or kind == TRUE or kind == FALSE:
        return True
    if kind == NUMBER:
        sign = 1 if byte_at(buffer, at) == 45 else 0
        if sign == 1 and byte_at(buffer, at + 1) == 48:
            return False
        digits = count_digits(buffer, at + sign, at + size)
        return digits == size - sign and 0 < digits <= _DIGITS_MAX
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
def is_placeholder(buffer: Array, at: int, size: int) -> bool:
    """Return whether a text may be the one that Debezium writes for a value it does not know."""
    word = load_word(buffer, at)
    return (size == 28 and word == _UNAVAILABLE) or (size == 40 and word == _UNAVAILABLE_BASE64)


@inlined
def is_decimal(buffer: Array, at: int, size: int, whole_max: int, scale: int) -> bool:
    """Return whether a number has at most so many digits before the point, and after it."""
    end = at + size
    if size > 0 and byte_at(buffer, at) == 45:
        at += 1
    whole = count_digits(buffer, at, end)
    at += whole
    if whole == 0 or whole > whole_max:
        return False
    if at == end:
        return True
    fraction = count_digits(buffer, at + 1, end)
    return byte_at(buffer, at) == 46 and 0 < fraction <= scale and at + 1 + fraction == end


@inlined
def is_floating(buffer: Array, at: int, size: int, low: int, high: int) -> bool:
    """Return whether a number is far enough from overflow and underflow, by its powers of ten."""
    if size > _FLOATING_BYTES_MAX:
        return False
    end = at + size
    if size > 0 and byte_at(buffer, at) == 45:
        at += 1
    leads = byte_at(buffer, at) != 48
    whole = count_digits(buffer, at, end)
    at += whole
    fraction = 0
    if at < end and byte_at(buffer, at) == 46:
        fraction = count_digits(buffer, at + 1, end)
        if fraction == 0:
            return False
        at += 1 + fraction
    power = 0
    if at < end and byte_at(buffer, at) | 32 == 101:  # e
        at += 1
        negative = at < end and byte_at(buffer, at) == 45
        if at < end and (negative or byte_at(buffer, at) == 43):
            at += 1
        digits = count_digits(buffer, at, end)
        if digits == 0 or digits > _EXPONENT_DIGITS_MAX:
            return False
        for index in range(at, at + digits):
            power = 10 * power + byte_at(buffer, index) - 48
        at += digits
        if negative:
            power = -power
    smallest = power + whole - 1 if leads else power - fraction
    return whole > 0 and at == end and smallest >= low and power + whole - 1 <= high


@inlined
def time_size(buffer: Array, at: int, size: int) -> int:
    """Return the size of a TIME without the zeros at its end, or -1 for another form."""
    if size == _SECONDS_SIZE:
        return size
    if size < _SECONDS_SIZE + 2 or size > _MICROS_SIZE:
        return -1
    if byte_at(buffer, at + _SECONDS_SIZE) != 46:
        return -1
    first = at + _SECONDS_SIZE + 1
    if count_digits(buffer, first, at + size) != size - _SECONDS_SIZE - 1:
        return -1
    while byte_at(buffer, at + size - 1) == 48:
        size -= 1
    return _SECONDS_SIZE if size == _SECONDS_SIZE + 1 else size


@inlined
def is_latin1(buffer: Array, at: int, size: int) -> bool:
    """Return whether all characters are at most U+00FF."""
    end = at + size
    while at < end:
        byte = byte_at(buffer, at)
        if byte > 0xC3:  # begins a character from U+0100 on
            return False
        if byte == 92 and byte_at(buffer, at + 1) == 117:
            if hex_digit(byte_at(buffer, at + 2)) or hex_digit(byte_at(buffer, at + 3)):
                return False
        at += 2 if byte == 92 else 1
    return True


@inlined
def is_base64(buffer: Array, at: int, size: int) -> bool:
    """Return whether a text is whole groups of four characters, padded at its end only."""
    if size % 4 != 0:
        return False
    padding = 0
    while padding < 2 and padding < size and byte_at(buffer, at + size - 1 - padding) == 61:
        padding += 1
    for index in range(at, at + size - padding):
        byte = byte_at(buffer, index)
        if not (97 <= byte | 32 <= 122 or 48 <= byte <= 57 or byte == 43 or byte == 47):
            return False
    return True
