"""Order keys: values as bytes that sort, byte by byte, as SQL sorts the values.

    ("a",          None,   -3)     of (STRING, INT, INT); NULL is before everything
      │             │       │
      ▼             ▼       ▼
     01 61 00 00 │  00  │  7e fd   each value marks its own end, so no key is a prefix of
                                   another one, and keys can be concatenated

    NULL              00
    false, true       01 / 02
    integers          one byte of sign and length, then the digits of base 256; any size
    floats            01 and the flipped bits when negative, 02 and the bits, 03 for NaN
    text, bytes       01, the (UTF-8) bytes with 00 written as 00 ff, then 00 00
    rows              01, then their parts
    arrays            01, before each element 01, then 00

(A single 00 at the end would sort correctly too, but the key of "" would be a prefix of the key of
a NUL.) The first byte of a value is never ff, so a group's key followed by ff is the end of its
entries.

Encoders are generated once for each list of types, because they run for every changed group and
every multiset entry of an epoch.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Sequence
from functools import cache
from textwrap import indent
from typing import Any

from jobs.core.values.change import Value
from schemas.types.sql_types import COMPOSITE, Kind, SqlType

HASH_BYTES = 16
NULL = b"\x00"
NAN_KEY = b"\x03"
ESCAPED_NUL = b"\x00\xff"
END = b"\x00\x00"

# From so many bytes on, the length of an integer exceeds the first byte; no SQL type has so many.
GIANT_BYTES = 126
GIANT = b"\xfe"
GIANT_NEGATIVE = b"\x01"
# Added to a number of n bytes, these put the first byte before its digits. A negative number
# borrows one from it, so its digits become the complement, which sorts correctly.
_UP = [(0x80 + n) << (8 * n) for n in range(GIANT_BYTES)]
_DOWN = [(0x80 - n) << (8 * n) for n in range(GIANT_BYTES)]
_ZERO_HEAD = 0x80
_LENGTH_LIMIT = 1 << 64

_pack_double = struct.Struct(">d").pack
_unpack_double = struct.Struct(">d").unpack
_FLIP = bytes(range(255, -1, -1))

Encoder = Callable[[Sequence[Value]], bytes]
ValueEncoder = Callable[[Any], bytes]
ValueDecoder = Callable[[bytes], Value]

_TEMPLATES = {
    "bool": """\
k = NULL if v is None else b"\\2" if v else b"\\1"
""",
    "int": """\
if v is None:
    k = NULL
else:
    n = v.bit_length() + 7 >> 3
    if n < GIANT_BYTES:
        k = ((UP if v >= 0 else DOWN)[n] + v).to_bytes(n + 1, "big")
    else:
        k = giant(v)
""",
    "float": """\
if v is None:
    k = NULL
elif v != v:
    k = NAN_KEY
elif v >= 0:
    k = b"\\2" + pack_double(v + 0.0)
else:
    k = b"\\1" + pack_double(v).translate(FLIP)
""",
    "str": """\
if v is None:
    k = NULL
elif "\\0" in v:
    k = b"\\1" + v.encode().replace(NULL, ESCAPED_NUL) + END
else:
    k = f"\\1{v}\\0\\0".encode()
""",
    "bytes": """\
k = NULL if v is None else b"\\1" + v.replace(NULL, ESCAPED_NUL) + END
""",
}


def _encoder_code(sql_type: SqlType, names: dict[str, object]) -> str:
    """Return code that computes key `k` of value `v`; add the functions it calls to `names`."""
    if sql_type.kind not in COMPOSITE:
        return _TEMPLATES[_python_type(sql_type)]
    part = f"encode_{len(names)}"
    if sql_type.kind is Kind.ROW:
        names[part] = encoder(sql_type.items)
        return f'k = NULL if v is None else b"\\1" + {part}(v)\n'
    names[part] = value_encoder(sql_type.items[0])
    items = f'b"".join([b"\\1" + {part}(item) for item in v])'
    return f'k = NULL if v is None else b"\\1" + {items} + NULL\n'


def _python_type(sql_type: SqlType) -> str:
    """Return the name of the Python type of a SQL type's values."""
    if sql_type.kind in COMPOSITE:
        return sql_type.kind.lower()
    if sql_type.kind is Kind.BOOLEAN:
        return "bool"
    if sql_type.floating:
        return "float"
    if sql_type.kind is Kind.BINARY:
        return "bytes"
    if sql_type.kind is Kind.STRING or sql_type.textual_time:
        return "str"
    return "int"


def _encode_giant(value: int) -> bytes:
    """Encode an integer of at least GIANT_BYTES: its length follows the first byte."""
    n = (value.bit_length() + 7) >> 3
    if value >= 0:
        return GIANT + n.to_bytes(8, "big") + value.to_bytes(n, "big")
    length = _LENGTH_LIMIT - 1 - n
    return GIANT_NEGATIVE + length.to_bytes(8, "big") + (value + (1 << 8 * n)).to_bytes(n, "big")


_NAMES: dict[str, object] = {
    "NULL": NULL,
    "NAN_KEY": NAN_KEY,
    "ESCAPED_NUL": ESCAPED_NUL,
    "END": END,
    "GIANT_BYTES": GIANT_BYTES,
    "UP": _UP,
    "DOWN": _DOWN,
    "FLIP": _FLIP,
    "giant": _encode_giant,
    "pack_double": _pack_double,
}


def _compile(source: str, names: dict[str, object]) -> Any:
    exec(source, names)  # noqa: S102 - generated from types; contains no text of a user
    return names["encode"]


@cache
def encoder(types: tuple[SqlType, ...]) -> Encoder:
    """Return a function from tuples of values of these types to their keys."""
    lines = ["def encode(values):\n"]
    names = dict(_NAMES)
    parts = []
    if types:
        lines.append(f"    ({''.join(f'v{i}, ' for i in range(len(types)))}) = values\n")
    for i, sql_type in enumerate(types):
        block = _encoder_code(sql_type, names).replace("k = ", f"k{i} = ")
        lines.append(f"    v = v{i}\n" + indent(block, "    "))
        parts.append(f"k{i}")
    lines.append(f"    return {' + '.join(parts) or repr(b'')}\n")
    encode: Encoder = _compile("".join(lines), names)
    return encode


@cache
def value_encoder(sql_type: SqlType) -> ValueEncoder:
    """Return a function from values of this type to their keys."""
    names = dict(_NAMES)
    block = indent(_encoder_code(sql_type, names), "    ")
    encode: ValueEncoder = _compile(f"def encode(v):\n{block}    return k\n", names)
    return encode


def encode_key(values: Sequence[Value], kinds: Sequence[SqlType]) -> bytes:
    """Return the key of a tuple of values of these types."""
    return encoder(tuple(kinds))(values)


def shorten_key(key: bytes, bytes_max: int) -> bytes:
    """Return the key, or its first `bytes_max` bytes and a hash of the whole if it is longer.

    Keys that differ within `bytes_max` bytes keep their order. The hash distinguishes the others;
    a caller that needs their order stores the full value beside the key.
    """
    if len(key) <= bytes_max:
        return key
    return key[:bytes_max] + hashlib.blake2b(key, digest_size=HASH_BYTES).digest()


def _decode_bool(key: bytes) -> Value:
    return None if key == NULL else key == b"\x02"


def _decode_int(key: bytes) -> Value:
    head = key[0]
    if head == NULL[0]:
        return None
    if head in (GIANT[0], GIANT_NEGATIVE[0]):
        digits = key[9:]
        number = int.from_bytes(digits, "big")
        return number if head == GIANT[0] else number - (1 << 8 * len(digits))
    size = len(key) - 1
    bases = _UP if head >= _ZERO_HEAD else _DOWN
    return int.from_bytes(key, "big") - bases[size]


def _decode_float(key: bytes) -> Value:
    if key == NULL:
        return None
    if key == NAN_KEY:
        return math.nan
    bits = key[1:] if key[0] == b"\x02"[0] else key[1:].translate(_FLIP)
    number: float = _unpack_double(bits)[0]
    return number


def _decode_str(key: bytes) -> Value:
    return None if key == NULL else key[1:-2].replace(ESCAPED_NUL, NULL).decode()


def _decode_bytes(key: bytes) -> Value:
    return None if key == NULL else key[1:-2].replace(ESCAPED_NUL, NULL)


_DECODERS: dict[str, ValueDecoder] = {
    "bool": _decode_bool,
    "int": _decode_int,
    "float": _decode_float,
    "str": _decode_str,
    "bytes": _decode_bytes,
}


def value_decoder(sql_type: SqlType) -> ValueDecoder:
    """Return the inverse of `value_encoder`."""
    if sql_type.kind is Kind.ROW:
        return _row_decoder(sql_type.items)
    return _DECODERS[_python_type(sql_type)]


def _row_decoder(items: tuple[SqlType, ...]) -> ValueDecoder:
    parts = [(_ENDS[_python_type(item)], value_decoder(item)) for item in items]

    def decode(key: bytes) -> Value:
        if key == NULL:
            return None
        at, values = 1, []
        for end_of, value_of in parts:
            end = end_of(key, at)
            values.append(value_of(key[at:end]))
            at = end
        return tuple(values)

    return decode


def _end_of_int(key: bytes, at: int) -> int:
    head = key[at]
    if head == NULL[0]:
        return at + 1
    if head in (GIANT[0], GIANT_NEGATIVE[0]):
        length = int.from_bytes(key[at + 1 : at + 9], "big")
        return at + 9 + (length if head == GIANT[0] else _LENGTH_LIMIT - 1 - length)
    return at + 1 + (head - _ZERO_HEAD if head >= _ZERO_HEAD else _ZERO_HEAD - 1 - head)


def _end_of_float(key: bytes, at: int) -> int:
    return at + (1 if key[at] in (NULL[0], NAN_KEY[0]) else 9)


def _end_of_text(key: bytes, at: int) -> int:
    return at + 1 if key[at] == NULL[0] else key.index(END, at + 1) + len(END)


# For each type: the end of a value in a key, from its start.
_ENDS: dict[str, Callable[[bytes, int], int]] = {
    "bool": lambda key, at: at + 1,
    "int": _end_of_int,
    "float": _end_of_float,
    "str": _end_of_text,
    "bytes": _end_of_text,
}
