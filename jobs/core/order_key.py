"""Order keys: values as bytes that sort, byte by byte, as SQL sorts the values.

    ("a",          None,   -3)     of (STRING, INT, INT); NULL is before everything
      │             │       │
      ▼             ▼       ▼
     01 61 00 00 │  00  │  7e fd   every value ends by itself, so that no key is the beginning
                                   of another and keys may simply be joined

    NULL              00
    false, true       01 / 02
    integers          one byte of sign and length, then the digits of base 256; any size
    floats            01 and the flipped bits when negative, 02 and the bits, 03 for NaN
    text, bytes       01, the (UTF-8) bytes with 00 written as 00 ff, then 00 00

(A single 00 at the end would sort right too, but then the key of "" begins that of a NUL.) The
first byte of a value is never ff: who seeks the end of a group's entries puts ff behind the group.

Encoders are generated once for a list of types: they run for every touched group and every
multiset entry of an epoch.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Sequence
from functools import cache
from textwrap import indent
from typing import Any

from jobs.core.change import Value
from schemas.types import Kind, SqlType

HASH_BYTES = 16
NULL = b"\x00"
NAN_KEY = b"\x03"
ESCAPED_NUL = b"\x00\xff"
END = b"\x00\x00"

# Integers of so many bytes no longer fit the length into the first byte; no SQL type reaches it.
GIANT_BYTES = 126
GIANT = b"\xfe"
GIANT_NEGATIVE = b"\x01"
# Added to a number of n bytes these put the first byte before its digits; a negative number
# borrows one from it, which makes its digits the complement that sorts.
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


def _form(sql_type: SqlType) -> str:
    """The Python type that carries a SQL type's values."""
    if sql_type.kind is Kind.BOOLEAN:
        return "bool"
    if sql_type.floating:
        return "float"
    if sql_type.kind is Kind.BINARY:
        return "bytes"
    if sql_type.kind is Kind.STRING or sql_type.textual_time:
        return "str"
    return "int"


def _giant(value: int) -> bytes:
    """An integer whose length needs a number of its own."""
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
    "giant": _giant,
    "pack_double": _pack_double,
}


def _generated(source: str) -> Any:
    names = dict(_NAMES)
    exec(source, names)
    return names["encode"]


@cache
def encoder(types: tuple[SqlType, ...]) -> Encoder:
    """The function that turns a tuple of values of these types into its key."""
    lines = ["def encode(values):\n"]
    parts = []
    if types:
        lines.append(f"    ({''.join(f'v{i}, ' for i in range(len(types)))}) = values\n")
    for i, sql_type in enumerate(types):
        block = _TEMPLATES[_form(sql_type)].replace("k = ", f"k{i} = ")
        lines.append(f"    v = v{i}\n" + indent(block, "    "))
        parts.append(f"k{i}")
    lines.append(f"    return {' + '.join(parts) or repr(b'')}\n")
    encode: Encoder = _generated("".join(lines))
    return encode


@cache
def value_encoder(sql_type: SqlType) -> ValueEncoder:
    """The same for one value that is not in a tuple."""
    block = indent(_TEMPLATES[_form(sql_type)], "    ")
    encode: ValueEncoder = _generated(f"def encode(v):\n{block}    return k\n")
    return encode


def ordered(values: Sequence[Value], kinds: Sequence[SqlType]) -> bytes:
    """The key of a tuple of values of these types."""
    return encoder(tuple(kinds))(values)


def bounded(key: bytes, bytes_max: int) -> bytes:
    """The key itself up to `bytes_max` bytes; beyond, so many bytes of it and a hash of it all.

    Keys that differ within `bytes_max` bytes keep their order; the others are told apart by the
    hash, so that who needs their order keeps the full value beside the key.
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
    """The way back from the key of one value."""
    return _DECODERS[_form(sql_type)]
