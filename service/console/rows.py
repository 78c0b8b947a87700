"""Result rows as pages show them: cells as text, and the address of each row's group.

{"name": "bolt", "top": 998} ──► cells, an element id for live updates, /jobs/items/results/bolt
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from jobs.core.values.json_values import Json
from jobs.core.values.order_key import value_encoder
from jobs.reading.listing import parse_text
from jobs.reading.row_shape import RowShape
from schemas.types.json_types import JsonObject

_DOT_SEGMENTS = (".", "..")  # browsers resolve them as steps in a path


@dataclass(frozen=True, slots=True)
class Cell:
    column: str
    text: str
    tone: str  # num, null or text


@dataclass(frozen=True, slots=True)
class DisplayRow:
    id: str
    link: str | None  # the last segment of its group's address; None if no column has the key
    cells: tuple[Cell, ...]


def format_value(value: Json | Any) -> str:
    """Return a value of a row as text, exact and unescaped."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def make_cell(column: str, value: Any, *, numeric: bool) -> Cell:
    if value is None:
        return Cell(column, "NULL", "null")
    if value == "":
        return Cell(column, "(empty)", "null")
    return Cell(column, format_value(value), "num" if numeric else "text")


def is_numeric(shape: RowShape, column: str) -> bool:
    kind = shape.columns[column]
    return kind.integer or kind.floating or str(kind).startswith("DECIMAL")


def find_numeric_columns(shape: RowShape) -> frozenset[str]:
    return frozenset(name for name in shape.names if is_numeric(shape, name))


def encode_key(key: Mapping[str, Any]) -> str:
    """Return a key as the last segment of an address; RowShape.parse_key reads it."""
    if len(key) == 1:
        (value,) = key.values()
        text = value if isinstance(value, str) else json.dumps(value)
        if value is not None and text and not text.startswith("{") and text not in _DOT_SEGMENTS:
            return quote(text, safe="")
    return quote(json.dumps(key, ensure_ascii=False, separators=(",", ":")), safe="")


def label_key(key: Mapping[str, Any]) -> str:
    """Return a readable key: its only value, or name=value of each column."""
    if not key:
        return "all rows"
    if len(key) == 1:
        (value,) = key.values()
        return "NULL" if value is None else format_value(value) or "(empty)"
    return ", ".join(
        f"{name}={'NULL' if value is None else format_value(value)}" for name, value in key.items()
    )


def list_group_columns(shape: RowShape) -> list[str]:
    return [named.name for named in shape.plan.group]


def find_key(shape: RowShape, row: Mapping[str, Any]) -> JsonObject | None:
    """Return the key of a row; None if the query does not select all group columns."""
    names = list_group_columns(shape)
    return {name: row[name] for name in names} if all(name in row for name in names) else None


def make_row(shape: RowShape, numeric: frozenset[str], row: Mapping[str, Any]) -> DisplayRow:
    key = find_key(shape, row)
    link = None if key is None else encode_key(key)
    cells = tuple(make_cell(name, row[name], numeric=name in numeric) for name in shape.names)
    identity = link if link is not None else json.dumps(row, default=str)
    digest = hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()
    return DisplayRow(f"row-{digest}", link, cells)


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """The old and the new value of one column."""

    column: str
    before: Cell
    after: Cell
    direction: str  # up or down; same or other if the numbers have no order


def compare_rows(
    shape: RowShape, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> list[ColumnChange]:
    """Return the columns in which two rows of a group differ."""
    if before is None or after is None:
        return []
    return [
        _compare_column(shape, name, before[name], after[name])
        for name in shape.names
        if before[name] != after[name]
    ]


def _compare_column(shape: RowShape, column: str, before: Any, after: Any) -> ColumnChange:
    numeric = is_numeric(shape, column)
    old, new = (make_cell(column, value, numeric=numeric) for value in (before, after))
    return ColumnChange(column, old, new, _find_direction(shape, column, before, after))


def _find_direction(shape: RowShape, column: str, before: Any, after: Any) -> str:
    if before is None or after is None or not is_numeric(shape, column):
        return "other"
    kind = shape.columns[column]
    old, new = (
        value_encoder(kind)(parse_text(format_value(value), column, kind))
        for value in (before, after)
    )
    return "same" if old == new else "up" if new > old else "down"


class Heading(NamedTuple):
    """The heading of a column: its order now, and the query after a click on it."""

    label: str
    sort: str
    query: str
    kind: str


def make_heading(
    name: str, order: str | None, encode: Callable[[str], str], label: str = "", kind: str = ""
) -> Heading:
    """Return a heading; the first click on numbers puts the greatest first, the third ends it."""
    up, down = name, f"-{name}"
    first, second = (down, up) if "num" in kind else (up, down)
    sort = {up: "ascending", down: "descending"}.get(order or "", "none")
    after = first if sort == "none" else second if order == first else ""
    return Heading(label or name, sort, encode(after), kind)


class Column(NamedTuple):
    """A column of a page's own table, for which a row has a value that can be sorted, or None."""

    name: str
    label: str
    value: Callable[[Any], Any]
    kind: str = ""


Row = TypeVar("Row")


def sort_table(
    columns: Sequence[Column], rows: Iterable[Row], order: str, **kept: str
) -> tuple[list[Heading], list[Row]]:
    """Return the headings, and the rows by `order`; `kept` are the page's other parameters."""

    def encode(after: str) -> str:
        pairs = {**kept, "order": after}
        return f"?{urlencode({name: value for name, value in pairs.items() if value})}"

    headings = [make_heading(c.name, order, encode, c.label, c.kind) for c in columns]
    value = next((c.value for c in columns if c.name == order.removeprefix("-")), None)
    if value is None:
        return headings, list(rows)
    found = list(rows)
    known = [row for row in found if value(row) is not None]
    known.sort(key=value, reverse=order.startswith("-"))
    return headings, known + [row for row in found if value(row) is None]
