"""A message's bytes as JSON, within bounds: the slow and exact reader behind the fast decoders.

    bytes ──► size ──► UTF-8 ──► depth ──► JSON, numbers kept as their text

What Flink's reader takes, this one takes: a byte order mark, raw control characters in strings,
the last of duplicate keys, and anything after the first value, which is ignored.
"""

from __future__ import annotations

import json
import re

from schemas import limits

_BLANKS = " \t\n\r"
_BYTE_ORDER_MARK = "\ufeff"
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?+', re.DOTALL)
_AS_SQUARE = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_TOO_MANY = b"[" * (limits.MESSAGE_DEPTH_MAX + 1)  # none of them closed before the next
_SHOWN_CHARACTERS_MAX = 80


class JsonNumber(str):
    """The text of a JSON number: the exact value, whatever type the column turns out to have."""

    __slots__ = ()


class UnreadableError(ValueError):
    """The bytes are not JSON that we take; the text says why."""


def read(value: bytes, bytes_max: int) -> object:
    """The first JSON value in `value`; every number in it is a JsonNumber."""
    if len(value) > bytes_max:
        raise UnreadableError(f"the message has {len(value)} bytes; at most {bytes_max} are read")
    try:
        text = value.decode("utf-8", "strict").removeprefix(_BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        raise UnreadableError(f"not UTF-8 at byte {error.start}: {error.reason}") from None
    if too_deep(value):
        raise UnreadableError(f"nested deeper than {limits.MESSAGE_DEPTH_MAX} levels")
    start = len(text) - len(text.lstrip(_BLANKS))
    try:
        root, _ = _READER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise UnreadableError(f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise UnreadableError("nested deeper than the parser's stack") from None
    return root


def acceptable(value: bytes, bytes_max: int) -> bool:
    """What a fast reader cannot see in the parts that it skips: size, encoding and depth."""
    if len(value) > bytes_max:
        return False
    return (value.isascii() or _valid_utf8(value)) and not too_deep(value)


def too_deep(value: bytes) -> bool:
    """Whether objects and arrays nest deeper than the limit; a short message may nest as it can.

    The usual answer takes three counts. In an array of flat rows each `},{` closes one object
    before it opens the next, so these add nothing to the depth; brackets inside strings only make
    the estimate higher. When the estimate is above the limit the brackets are really matched.
    """
    if len(value) <= limits.SHORT_MESSAGE_BYTES_MAX:
        return False
    opened = value.count(b"{") + value.count(b"[")
    if opened <= limits.MESSAGE_DEPTH_MAX:
        return False
    if opened - value.count(b"},{") <= limits.MESSAGE_DEPTH_MAX:
        return False
    brackets = _STRINGS.sub(b"", value).translate(_AS_SQUARE, _NOT_BRACKETS)
    for _ in range(limits.MESSAGE_DEPTH_MAX):
        if _TOO_MANY in brackets:  # megabytes of nothing else are seen at once
            return True
        peeled = brackets.replace(b"[]", b"")  # the innermost level
        if len(peeled) == len(brackets):
            break
        brackets = peeled
    return b"[" in brackets


def shown(field: object) -> str:
    """A value as a reason shows it: short, and printable whatever is in it."""
    if isinstance(field, JsonNumber):
        text = str(field)
    elif isinstance(field, str):
        # Clipped first as well: the repr of a giant would cost as much as the giant.
        text = repr(field[: _SHOWN_CHARACTERS_MAX + 1])
    elif field is None or isinstance(field, bool):
        text = {None: "null", True: "true", False: "false"}[field]
    elif isinstance(field, dict):
        text = "an object"
    elif isinstance(field, list):
        text = "an array"
    else:
        text = repr(field)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[: _SHOWN_CHARACTERS_MAX - 1] + "…"


def _valid_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8", "strict")
    except UnicodeDecodeError:
        return False
    return True


def _refuse_constant(word: str) -> object:
    raise UnreadableError(f"not JSON: {word} must be a string")


_READER = json.JSONDecoder(
    parse_float=JsonNumber, parse_int=JsonNumber, parse_constant=_refuse_constant, strict=False
)
