"""Rows of results as pages show them: cells as text, and where a group is looked at.

{"name": "bolt", "top": 998} ──► cells, an id for the live part, /jobs/items/results/bolt
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from jobs.core.explain.extreme_changes import source_text
from jobs.core.values.json_values import Json
from service.console import words
from service.table.row_shape import RowShape

_DOTS = (".", "..")  # which browsers take for steps in a path


@dataclass(frozen=True, slots=True)
class Cell:
    column: str
    text: str
    tone: str  # num, null or text


@dataclass(frozen=True, slots=True)
class ShownRow:
    id: str
    link: str | None  # the last part of its group's address; None where no column names it
    cells: tuple[Cell, ...]


def text_of(value: Json | Any) -> str:
    """A value of a row as it is: exact, and never its meaning."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def cell(column: str, value: Any, *, numeric: bool) -> Cell:
    if value is None:
        return Cell(column, "NULL", "null")
    if value == "":
        return Cell(column, "(empty)", "null")
    return Cell(column, text_of(value), "num" if numeric else "text")


def is_numeric(shape: RowShape, column: str) -> bool:
    kind = shape.columns[column]
    return kind.integer or kind.floating or str(kind).startswith("DECIMAL")


def numeric_columns(shape: RowShape) -> frozenset[str]:
    return frozenset(name for name in shape.names if is_numeric(shape, name))


def key_part(key: Mapping[str, Any]) -> str:
    """What stands for a group at the end of an address: see RowShape.parse_key."""
    if len(key) == 1:
        (value,) = key.values()
        text = value if isinstance(value, str) else json.dumps(value)
        if value is not None and text and not text.startswith("{") and text not in _DOTS:
            return quote(text, safe="")
    return quote(json.dumps(key, ensure_ascii=False, separators=(",", ":")), safe="")


def key_label(key: Mapping[str, Any]) -> str:
    """A group in words: its one value, or name=value of each column."""
    if not key:
        return "all rows"
    if len(key) == 1:
        (value,) = key.values()
        return "NULL" if value is None else text_of(value) or "(empty)"
    return ", ".join(f"{name}={'NULL' if v is None else text_of(v)}" for name, v in key.items())


def group_names(shape: RowShape) -> list[str]:
    return [named.name for named in shape.plan.group]


def key_of_row(shape: RowShape, row: Mapping[str, Any]) -> dict[str, Any] | None:
    """The group of a row; None where the query does not select all of its group columns."""
    names = group_names(shape)
    return {name: row[name] for name in names} if all(name in row for name in names) else None


def shown_row(shape: RowShape, numeric: frozenset[str], row: Mapping[str, Any]) -> ShownRow:
    key = key_of_row(shape, row)
    link = None if key is None else key_part(key)
    cells = tuple(cell(name, row[name], numeric=name in numeric) for name in shape.names)
    named = link if link is not None else json.dumps(row, default=str)
    return ShownRow(f"row-{digest(named)}", link, cells)


def digest(text: str) -> str:
    """A name for an element, of whatever characters."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Step:
    """How a column went from one value to another."""

    column: str
    before: Cell
    after: Cell
    way: str  # up, down or other


def step(shape: RowShape, column: str, before: Any, after: Any) -> Step:
    numeric = is_numeric(shape, column)
    old, new = (cell(column, value, numeric=numeric) for value in (before, after))
    return Step(column, old, new, way_of(shape, column, before, after))


def way_of(shape: RowShape, column: str, before: Any, after: Any) -> str:
    """Whether a number went up or down."""
    if before is None or after is None or not is_numeric(shape, column):
        return "other"
    old, new = (shape.value_bytes(column, text_of(value)) for value in (before, after))
    return "same" if old == new else "up" if new > old else "down"


def steps(
    shape: RowShape, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> list[Step]:
    """The columns in which two rows of a group differ."""
    if before is None or after is None:
        return []
    return [
        step(shape, name, before[name], after[name])
        for name in shape.names
        if before[name] != after[name]
    ]


def ranges_told(read: Mapping[str, Mapping[str, Any]] | None) -> str:
    """Source offsets: shop.product/2 [120, 131)."""
    if read is None:
        return "which offsets is no longer known"
    return source_text(read, words.number) or "nothing: time had come"
