"""Rows of a job compared with rows of a database, whose values are texts.

results of a job ──► {column: value} ──┐
rows of a query  ──► {column: text}  ──┴─► groups that are lost, and groups that are wrong
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

DOUBLE_DIGITS = 1e-12


def equal(value: Any, text: str | None) -> bool:
    """Return whether a value of a result is what the database prints as `text`."""
    if value is None or text is None:
        return value is None and text is None
    if isinstance(value, bool):
        return value == (text != "0")
    if isinstance(value, int):
        return value == Decimal(text)
    if isinstance(value, float):
        return math.isclose(value, float(text), rel_tol=DOUBLE_DIGITS)
    return value == text or _plain(value) == _plain(text)


def differences(
    found: Iterable[Mapping[str, Any]], truth: Iterable[Mapping[str, str | None]], keys: list[str]
) -> tuple[list[str], list[str]]:
    """Return the groups that the job lacks, and those that it has wrong or should not have."""
    rows = {_key(row, keys): row for row in found}
    true = {_key(row, keys): row for row in truth}
    lost = [f"{key}: {row}" for key, row in true.items() if key not in rows]
    wrong = [f"{key}: unknown to the database" for key in rows.keys() - true.keys()]
    for key in rows.keys() & true.keys():
        for column, text in true[key].items():
            if not equal(rows[key][column], text):
                wrong.append(f"{key}.{column}: {rows[key][column]!r} for {text!r}")
    return lost, sorted(wrong)


def _key(row: Mapping[str, Any], keys: list[str]) -> str:
    return json.dumps(
        [None if row[each] is None else _plain(str(row[each])) for each in keys], ensure_ascii=False
    )


def _plain(text: str) -> str:
    """Return a number or a time without zeros at the end of its fraction."""
    whole, point, fraction = text.rpartition(".")
    if point and fraction.isdigit() and whole[-1:].isdigit():
        return f"{whole}.{fraction}".rstrip("0").rstrip(".")
    return text
