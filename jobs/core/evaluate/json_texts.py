"""JSON_VALUE, JSON_QUERY and JSON_EXISTS: parts of a text with JSON.

    text ──► value at the path ─┬─► a scalar: as text            JSON_VALUE
                                └─► an object or array: as JSON  JSON_QUERY, with sorted keys

A text is no JSON, so there is nothing at any path, if an object has a key twice, half of a
character is escaped, or it nests too deep. Whatever follows the first value is ignored. A number is
a whole number of 64 bits, a decimal of at most 38 digits, or a DOUBLE.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

from jobs.core.evaluate.texts import double_text
from schemas.limits import JSON_DEPTH_MAX, NUMBER_CHARACTERS_MAX
from schemas.types.sql_types import DECIMAL_PRECISION_MAX

Json = Any
_BLANKS = " \t\n\r"
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]|\['([^']+)'\]")
_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(r"\\u00[01][0-9a-f]|\\.")
_MISSING = object()


class _Number(str):
    """The text of a number."""

    __slots__ = ()


def json_value(path: str) -> Callable[[str], str | None]:
    """Return a function from a text to the scalar at the path; None for any other value."""
    find = _finder(path)

    def value(text: str) -> str | None:
        found = find(text)
        if isinstance(found, bool):
            return "true" if found else "false"
        return str(found) if isinstance(found, str) else None

    return value


def json_query(path: str) -> Callable[[str], str | None]:
    """Return a function from a text to the object or array at the path, as JSON."""
    find = _finder(path)

    def query(text: str) -> str | None:
        found = find(text)
        return _print(found) if isinstance(found, dict | list) else None

    return query


def json_exists(path: str) -> Callable[[str], bool]:
    """Return a function that tells whether a text has a value at the path; null is one."""
    find = _finder(path)
    return lambda text: find(text) is not _MISSING


def _finder(path: str) -> Callable[[str], Json]:
    steps: list[str | int] = [
        int(index) if index else member or quoted for member, index, quoted in _STEP.findall(path)
    ]

    def find(text: str) -> Json:
        found = _parse(text)
        for step in steps:
            if isinstance(step, str):
                found = found.get(step, _MISSING) if isinstance(found, dict) else _MISSING
            else:
                inside = isinstance(found, list) and step < len(found)
                found = found[step] if inside else _MISSING
        return found

    return find


@lru_cache(maxsize=64)  # several functions of a query read the same text
def _parse(text: str) -> Json:
    """Return the first value of a text, with numbers as texts; _MISSING if it is no JSON."""
    if _is_too_deep(text):
        return _MISSING
    try:
        found, end = _DECODER.raw_decode(text, len(text) - len(text.lstrip(_BLANKS)))
    except ValueError:
        return _MISSING
    if "\\u" in text and _SURROGATE.search(json.dumps(found, ensure_ascii=False)):
        return _MISSING
    following = text[end : end + 1]
    if isinstance(found, _Number) and following.strip(_BLANKS):
        return _MISSING
    if (found is None or isinstance(found, bool)) and f"a{following}".isidentifier() and following:
        return _MISSING
    return found


def _is_too_deep(text: str) -> bool:
    if text.count("{") + text.count("[") <= JSON_DEPTH_MAX:
        return False
    depth = deepest = 0
    for bracket in _BRACKET.findall(text):
        depth += (bracket in "[{") - (bracket in "]}")
        deepest = max(deepest, depth)
    return deepest > JSON_DEPTH_MAX


def _print(value: Json) -> str:
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return "{" + ",".join(f"{_quote(key)}:{_print(value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_print, value)) + "]"
    if isinstance(value, _Number):
        return _quote(value) if value.endswith("Infinity") else str(value)
    return _quote(value) if isinstance(value, str) else json.dumps(value)


def _quote(text: str) -> str:
    """Return a text in quotes; the digits of an escaped character are upper case."""
    quoted = json.dumps(text, ensure_ascii=False)
    return _ESCAPE.sub(lambda each: each[0][:2] + each[0][2:].upper(), quoted)


# --- reading -------------------------------------------------------------------------------------


def _read_whole(text: str) -> _Number:
    number = int(text) if len(text) <= NUMBER_CHARACTERS_MAX else _refuse(text)
    fits = -(2**63) <= number < 2**63 or abs(number) < 10**DECIMAL_PRECISION_MAX
    return _Number(number) if fits else _Number(double_text(float(text)))


def _read_fraction(text: str) -> _Number:
    if len(text) > NUMBER_CHARACTERS_MAX:
        _refuse(text)
    if "e" not in text and "E" not in text:
        number = Decimal(text)
        _, digits, exponent = number.as_tuple()
        if len(digits) <= DECIMAL_PRECISION_MAX and -int(exponent) <= DECIMAL_PRECISION_MAX:
            plain = text.rstrip("0").rstrip(".")
            return _Number("0" if not number else plain)
    return _Number(double_text(float(text)))


def _read_object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _refuse("a key twice")


def _refuse(what: str) -> Any:
    raise ValueError(what)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_read_object,
    parse_int=_read_whole,
    parse_float=_read_fraction,
    parse_constant=_refuse,
)
