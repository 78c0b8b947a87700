"""Parse the bytes of a message as JSON, within limits: the exact reader of the decoders.

    bytes ──► size ──► without a header ──► UTF-8 ──► depth ──► JSON, numbers kept as their text

A serializer with a schema registry writes 0 and the id of a JSON Schema before the JSON. No JSON
begins with 0, so this header is skipped; the id is not used.
It accepts what Flink's reader accepts: a byte order mark, raw control characters in strings,
duplicate keys (the last one counts), and anything after the first value, which it ignores.
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
_TOO_MANY = b"[" * (limits.MESSAGE_DEPTH_MAX + 1)  # so many brackets in a row are too deep
_SHOWN_CHARACTERS_MAX = 80
_HEADER_BYTES = 5


class JsonNumber(str):
    """The text of a JSON number, which is exact for every type of the column."""

    __slots__ = ()


class UnreadableError(ValueError):
    """The bytes are not acceptable JSON; the text is the reason."""


def read_json(value: bytes, bytes_max: int) -> object:
    """Return the first JSON value in `value`, with every number as a JsonNumber."""
    if len(value) > bytes_max:
        raise UnreadableError(f"the message has {len(value)} bytes; the limit is {bytes_max}")
    value = skip_header(value)
    try:
        text = value.decode("utf-8", "strict").removeprefix(_BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        raise UnreadableError(f"not UTF-8 at byte {error.start}: {error.reason}") from None
    if is_too_deep(value):
        raise UnreadableError(f"nested deeper than {limits.MESSAGE_DEPTH_MAX} levels")
    start = len(text) - len(text.lstrip(_BLANKS))
    try:
        root, _ = _READER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise UnreadableError(
            f"not JSON: {error.msg.removesuffix(' at')} at character {error.pos}"
        ) from None
    except RecursionError:
        raise UnreadableError("nested deeper than the parser's stack") from None
    return root


def skip_header(value: bytes) -> bytes:
    """Return the JSON of a message without the header of a schema registry."""
    return value[_HEADER_BYTES:] if value[:1] == b"\0" else value


def is_acceptable(value: bytes, bytes_max: int) -> bool:
    """Return whether size, encoding and depth are acceptable, which fast decoders do not check."""
    if len(value) > bytes_max:
        return False
    value = skip_header(value)
    return (value.isascii() or _is_utf8(value)) and not is_too_deep(value)


def is_too_deep(value: bytes) -> bool:
    """Return whether objects and arrays nest deeper than the limit; a short message never does.

    Usually three counts suffice. In an array of flat rows each `},{` closes one object and opens
    the next, so it adds nothing to the depth; brackets inside strings only raise the estimate. If
    the estimate exceeds the limit, the brackets are matched exactly.
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
        if _TOO_MANY in brackets:  # a quick answer for megabytes of opening brackets
            return True
        peeled = brackets.replace(b"[]", b"")  # the innermost level
        if len(peeled) == len(brackets):
            break
        brackets = peeled
    return b"[" in brackets


def describe(field: object) -> str:
    """Return a short and printable form of a value, for reasons."""
    if isinstance(field, JsonNumber):
        text = str(field)
    elif isinstance(field, str):
        # Clip before repr too, which takes long for a giant string.
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


def _is_utf8(value: bytes) -> bool:
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
