"""Bytes and JSON for the kernels: where a string, a scalar or any value of JSON ends.

    buffer   {"a": [1, "x\\n"], ..} 0 {..} 0 PAD          messages, each ended by a byte 0
                  └─ value_end ─┘

No function goes over a byte that it has not recognized, and a byte 0 is part of no value. So no
read leaves its message, but for words of eight bytes: PAD bytes follow the last message. Where
there is no value, an end is -1.
"""

from __future__ import annotations

import numpy as np

from jobs.core.kernels.compiled import Array, inlined, keep_apart

PAD = 64
DEPTH_MAX = 32

# What a scalar is.
ABSENT, NULL, STRING, ESCAPED, NUMBER, TRUE, FALSE, OTHER = range(8)

U = np.uint64
_1, _2, _3, _4, _5, _6, _7 = (U(index) for index in range(1, 8))
_8, _16, _24, _32, _40, _48, _56 = (U(8 * index) for index in range(1, 8))
_ONES, _TOPS = U(0x0101010101010101), U(0x8080808080808080)
_QUOTES, _BACKSLASHES = U(0x2222222222222222), U(0x5C5C5C5C5C5C5C5C)
_BLANKS = U(0x2020202020202020)
_MASKS = np.array([2 ** (8 * size) - 1 for size in range(9)], dtype=np.uint64)
MASK_2, MASK_3, MASK_4, MASK_5, MASK_6, MASK_7 = (
    U(2 ** (8 * size) - 1) for size in (2, 3, 4, 5, 6, 7)
)


def word_of(text: bytes) -> np.uint64:
    """Return a short text as `load_word` reads it."""
    return U(int.from_bytes(text.ljust(8, b"\0"), "little"))


NULL_WORD, TRUE_WORD, FALSE_WORD = word_of(b"null"), word_of(b"true"), word_of(b"fals")


@inlined
def byte_at(buffer: Array, at: int) -> int:
    return np.int64(buffer[U(at)])  # type: ignore[return-value]


@inlined
def load_word(buffer: Array, at: int) -> np.uint64:
    """Return eight bytes as a word; the compiler makes one load of it."""
    p = U(at)
    low = U(buffer[p]) | U(buffer[p + _1]) << _8 | U(buffer[p + _2]) << _16
    low |= U(buffer[p + _3]) << _24 | U(buffer[p + _4]) << _32 | U(buffer[p + _5]) << _40
    return low | U(buffer[p + _6]) << _48 | U(buffer[p + _7]) << _56


@inlined
def equal_bytes(one: Array, at: int, other: Array, there: int, size: int) -> bool:
    done = 0
    while done + 8 <= size:
        if load_word(one, at + done) != load_word(other, there + done):
            return False
        done += 8
    if done < size:
        difference = load_word(one, at + done) ^ load_word(other, there + done)
        return bool((difference & _MASKS[size - done]) == U(0))
    return True


@inlined
def skip_blanks(buffer: Array, at: int) -> int:
    while True:
        byte = byte_at(buffer, at)
        if byte > 32 or not (byte == 32 or byte == 10 or byte == 13 or byte == 9):
            return at
        at += 1


@inlined
def _character_end(buffer: Array, at: int) -> int:
    """Return the end of a character of several bytes in UTF-8, or -1."""
    first = byte_at(buffer, at)
    low, high = 0x80, 0xBF
    if 0xC2 <= first <= 0xDF:
        more = 1
    elif 0xE0 <= first <= 0xEF:
        more = 2
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:  # a surrogate
            high = 0x9F
    elif 0xF0 <= first <= 0xF4:
        more = 3
        if first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
    else:
        return -1
    for _ in range(more):
        at += 1
        byte = byte_at(buffer, at)
        if not low <= byte <= high:
            return -1
        low, high = 0x80, 0xBF
    return at + 1


@inlined
def hex_digit(byte: int) -> int:
    if 48 <= byte <= 57:
        return byte - 48
    byte |= 32
    return byte - 87 if 97 <= byte <= 102 else -1


@inlined
def _escape_end(buffer: Array, at: int) -> int:
    """Return the end of what follows a backslash, or -1."""
    byte = byte_at(buffer, at)
    if byte == 117:  # u
        for _ in range(4):
            at += 1
            if hex_digit(byte_at(buffer, at)) < 0:
                return -1
        return at + 1
    if byte == 34 or byte == 92 or byte == 47:
        return at + 1
    if byte == 98 or byte == 102 or byte == 110 or byte == 114 or byte == 116:  # b f n r t
        return at + 1
    return -1


@inlined
def _ordinary_end(buffer: Array, at: int) -> int:
    """Return the next byte that is a quote, a backslash, a control or not ASCII.

    It takes eight bytes at a time. The top bit of a byte becomes 1 if the byte is one of these;
    behind the first such byte the bits may be wrong."""
    while True:
        word = load_word(buffer, at)
        special = ((word ^ _QUOTES) - _ONES) | ((word ^ _BACKSLASHES) - _ONES)
        special = (special | (word - _BLANKS) | word) & _TOPS
        if special:
            # All bits up to the first top bit; one of each byte, added up in the highest byte.
            below = (special ^ (special - _1)) & _ONES
            return at + np.int64((below * _ONES) >> _56) - 1  # type: ignore[return-value]
        at += 8


@inlined
def string_end(buffer: Array, at: int) -> tuple[int, int]:
    """Return where the string ends, or -1, and the token's kind; `at` is behind its quote."""
    kind = STRING
    while True:
        at = _ordinary_end(buffer, at)
        byte = byte_at(buffer, at)
        if byte == 34:
            return at, kind
        if byte == 92:
            kind = ESCAPED
            at = _escape_end(buffer, at + 1)
        elif byte >= 128:
            at = _character_end(buffer, at)
        else:
            return -1, kind
        if at < 0:
            return -1, kind


@inlined
def _digits_end(buffer: Array, at: int) -> int:
    """Return the end of at least one digit, or -1."""
    if not 48 <= byte_at(buffer, at) <= 57:
        return -1
    while 48 <= byte_at(buffer, at) <= 57:
        at += 1
    return at


@inlined
def _number_end(buffer: Array, at: int) -> int:
    if byte_at(buffer, at) == 45:
        at += 1
    at = at + 1 if byte_at(buffer, at) == 48 else _digits_end(buffer, at)
    if at < 0:
        return -1
    if byte_at(buffer, at) == 46:
        at = _digits_end(buffer, at + 1)
        if at < 0:
            return -1
    if byte_at(buffer, at) | 32 == 101:  # e
        at += 1
        if byte_at(buffer, at) == 45 or byte_at(buffer, at) == 43:
            at += 1
        at = _digits_end(buffer, at)
    return at


@inlined
def scalar_end(buffer: Array, at: int) -> tuple[int, int]:
    """Return the end of a scalar and its kind; -1 and OTHER if there is none."""
    byte = byte_at(buffer, at)
    if byte == 34:
        end, kind = string_end(buffer, at + 1)
        return (end + 1, kind) if end >= 0 else (-1, kind)
    word = load_word(buffer, at) & MASK_4
    if word == NULL_WORD:
        return at + 4, NULL
    if word == TRUE_WORD:
        return at + 4, TRUE
    if word == FALSE_WORD and byte_at(buffer, at + 4) == 101:
        return at + 5, FALSE
    if byte == 45 or 48 <= byte <= 57:
        return _number_end(buffer, at), NUMBER
    return -1, OTHER


@inlined
def key_end(buffer: Array, at: int) -> int:
    """From a key's opening quote to the value behind its colon, or -1."""
    if byte_at(buffer, at) != 34:
        return -1
    at, _ = string_end(buffer, at + 1)
    if at < 0:
        return -1
    at = skip_blanks(buffer, at + 1)
    return skip_blanks(buffer, at + 1) if byte_at(buffer, at) == 58 else -1


@keep_apart
def value_end(buffer: Array, at: int) -> int:
    """Return the end of any JSON value, nested at most DEPTH_MAX deep, or -1.

    `objects` has a bit for each level, 1 for an object."""
    depth = 0
    objects = 0
    while True:
        byte = byte_at(buffer, at)
        if byte == 123 or byte == 91:
            inside = skip_blanks(buffer, at + 1)
            if byte_at(buffer, inside) == byte + 2:
                at = inside + 1
            else:
                if depth == DEPTH_MAX:
                    return -1
                depth += 1
                objects = objects << 1 | (1 if byte == 123 else 0)
                at = key_end(buffer, inside) if byte == 123 else inside
                if at < 0:
                    return -1
                continue
        else:
            at, _ = scalar_end(buffer, at)
            if at < 0:
                return -1
        while True:  # a value has ended
            if depth == 0:
                return at
            at = skip_blanks(buffer, at)
            byte = byte_at(buffer, at)
            if byte == 44:
                at = skip_blanks(buffer, at + 1)
                if objects & 1:
                    at = key_end(buffer, at)
                    if at < 0:
                        return -1
                break
            if byte != (125 if objects & 1 else 93):
                return -1
            objects >>= 1
            depth -= 1
            at += 1
