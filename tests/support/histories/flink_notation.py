"""Changelog rows as Flink prints them, `+I[a, 1, null]`, so that its vectors can be compared.

Rows of one key are compared in order; the order of different keys inside a bundle is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def rows(outputs: Iterable[Mapping[str, Any]]) -> list[str]:
    """The emitted rows of a replay, in order."""
    return [f"{each['op']}[{_values(each['row'])}]" for each in outputs if "op" in each]


def per_key(lines: Iterable[str], key_columns: int) -> dict[tuple[str, ...], list[str]]:
    """Group lines by their key, which is their first columns; keys have no commas."""
    by_key: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        key = tuple(line[3:-1].split(", ")[:key_columns])
        by_key.setdefault(key, []).append(line)
    return by_key


def table(lines: Iterable[str], key_columns: int) -> dict[tuple[str, ...], str]:
    """Return a consumer's table at the end: the last row of each live key."""
    last = {key: own[-1] for key, own in per_key(lines, key_columns).items()}
    return {key: line[3:-1] for key, line in last.items() if line[:2] in ("+I", "+U")}


def _values(row: Mapping[str, Any]) -> str:
    return ", ".join(_text(value) for value in row.values())


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
