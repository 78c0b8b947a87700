"""Conditions and order of a listing of results, as REST and the command line take them.

    total>=10   name^=bo   name is null     ──► Condition: a column, a comparison, an encoded value
    -total,name                             ──► columns, each with whether it descends

Values are compared as bytes that sort like them; NULL is smallest, and never differs or is less.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from operator import ge, gt, le, lt
from typing import TypeVar

from jobs.core.values.change import Value
from jobs.core.values.json_text import describe
from jobs.core.values.json_values import Converter, parser
from jobs.core.values.order_key import value_encoder
from schemas.limits import CONDITIONS_MAX, ORDER_COLUMNS_MAX
from schemas.types.sql_types import Kind, SqlType

Columns = Mapping[str, SqlType]
Order = tuple[tuple[str, bool], ...]
Item = TypeVar("Item")

# Blanks around an operator are none of the value: n >= 1. Those only behind it are: n= 1.
_CONDITION = re.compile(
    r"([A-Za-z_]\w*)(?P<blank>\s+)?(!=|<=|>=|\^=|=|<|>)(?(blank)\s*)(.*)", re.DOTALL
)
_NULLNESS = re.compile(r"([A-Za-z_]\w*)\s+is\s+(not\s+)?null", re.IGNORECASE)
_COLUMN = re.compile(r"-?[A-Za-z_]\w*")
NULL = b"\x00"
_TEXT_END = 2  # bytes that end a text in its order key
_WIDE = Context(prec=80, Emax=999_999_999, Emin=-999_999_999)  # exact for every DECIMAL
_ORDERED = {">": gt, ">=": ge, "<": lt, "<=": le}


class ListingRefused(ValueError):
    """A condition or an order is invalid; `parameter` is where or order."""

    def __init__(self, parameter: str, reason: str) -> None:
        super().__init__(reason)
        self.parameter = parameter


class ColumnUnknown(ListingRefused):
    """The results have no such column."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of a column with an encoded value; `^=` compares the start of a text."""

    column: str
    op: str  # = != < <= > >= ^=; with NULL only = and !=
    value: bytes

    def holds(self, encoded: bytes) -> bool:
        """Return whether it is true for an encoded value."""
        if self.op == "=":
            return encoded == self.value
        if self.op == "^=":
            return encoded.startswith(self.value)
        if self.op == "!=":
            return encoded not in (self.value, NULL)
        less_than_null = self.op in ("<", "<=") and encoded == NULL
        return _ORDERED[self.op](encoded, self.value) and not less_than_null


def parse_conditions(columns: Columns, texts: Sequence[str]) -> tuple[Condition, ...]:
    """Return the conditions; raise ListingRefused if one is invalid."""
    if len(texts) > CONDITIONS_MAX:
        raise ListingRefused("where", f"a listing has at most {CONDITIONS_MAX} conditions")
    return tuple(_parse_condition(columns, text) for text in texts)


def parse_order(columns: Columns, text: str | None) -> Order:
    """Return the columns of an order, each with whether it descends."""
    names = text.split(",") if text else []
    if len(names) > ORDER_COLUMNS_MAX:
        raise ListingRefused("order", f"an order has at most {ORDER_COLUMNS_MAX} columns")
    for name in names:
        if _COLUMN.fullmatch(name) is None:
            raise ListingRefused("order", f"{_quote(name)} is not a column; write -total,name")
        _require_column(columns, name.removeprefix("-"), "order")
    return tuple((name.removeprefix("-"), name.startswith("-")) for name in names)


def exact_parser(kind: SqlType) -> Converter:
    """Return a parser of values to compare with: it refuses what it would round."""
    convert = parser(kind)

    def convert_exactly(field: object) -> Value:
        units = convert(field)
        if isinstance(units, int):
            exact = Decimal(units).scaleb(-(kind.scale or 0), _WIDE)
            if Decimal(str(field)) != exact:
                raise ValueError(f"{describe(field)} has more digits after the point than {kind}")
        return units

    return convert_exactly if kind.kind is Kind.DECIMAL else convert


def parse_text(text: str, column: str, kind: SqlType) -> Value:
    """Return the value that a text of a user has as a column; raise ValueError."""
    field: object = text
    if kind.kind is Kind.BOOLEAN:
        field = {"true": True, "false": False}.get(text, text)
    try:
        return exact_parser(kind)(field)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{column} is {kind}: {error}") from None


def select_items(
    columns: Columns,
    items: Iterable[tuple[tuple[Value, ...], Item]],
    conditions: Sequence[Condition],
    order: Order,
    limit: int | None,
) -> list[Item]:
    """Return the items whose values meet the conditions, in order; equal ones stay as they are."""
    indexes = {name: (n, value_encoder(kind)) for n, (name, kind) in enumerate(columns.items())}

    def encode(values: tuple[Value, ...], column: str) -> bytes:
        index, encoder = indexes[column]
        return encoder(values[index])

    kept = [
        (values, item)
        for values, item in items
        if all(each.holds(encode(values, each.column)) for each in conditions)
    ]
    for column, descending in reversed(order):
        kept.sort(key=lambda each: encode(each[0], column), reverse=descending)
    return [item for _, item in kept[:limit]]


def _parse_condition(columns: Columns, text: str) -> Condition:
    nullness = _NULLNESS.fullmatch(text.strip())
    if nullness is not None:
        _require_column(columns, nullness[1], "where")
        # Every encoded value but NULL is greater.
        return Condition(nullness[1], ">" if nullness[2] else "=", NULL)
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise ListingRefused(
            "where", f"{_quote(text)} is not a condition; write total>=10, name^=bo or name is null"
        )
    name, _, op, text_value = found.groups()
    _require_column(columns, name, "where")
    kind = columns[name]
    try:
        value = value_encoder(kind)(parse_text(text_value, name, kind))
    except ValueError as error:
        raise ListingRefused("where", str(error)) from None
    if op == "^=":
        if kind.kind is not Kind.STRING:
            raise ListingRefused(
                "where", f"^= (starts with) requires a STRING column; {name} has another type"
            )
        value = value[:-_TEXT_END]
    return Condition(name, op, value)


def _require_column(columns: Columns, name: str, parameter: str) -> None:
    if name not in columns:
        known = ", ".join(columns)
        reason = f"the results have no column {_quote(name)}; they have {known}"
        raise ColumnUnknown(parameter, reason)


def _quote(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "...")
