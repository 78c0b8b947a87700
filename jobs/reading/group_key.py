"""Keys of groups as users write them: {"name": "a", "day": null}."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal

from jobs.core.values.change import Row, Value
from jobs.reading.listing import exact_parser, parse_text
from schemas.types.sql_types import SqlType

GroupColumns = Sequence[tuple[str, SqlType]]


def parse_key_text(text: str, columns: GroupColumns) -> Row:
    """Return the key in an address: the value of its only column, or an object of all columns.

    Raise ValueError if it is none.
    """
    if text.startswith("{"):
        return parse_key_object(text, columns)
    if len(columns) != 1:
        example = make_key_example(columns)
        raise ValueError(f"write the key as an object of the group columns, {example}")
    return (parse_text(text, *columns[0]),)


def parse_key_object(text: str, columns: GroupColumns) -> Row:
    """Return the key that an object names; raise ValueError if it names none."""
    given = load_json(text)
    known = [name for name, _ in columns]
    example = f"write the group as {make_key_example(columns)}"
    if not isinstance(given, dict):
        raise ValueError(example)
    if unknown := [name for name in given if name not in known]:
        raise ValueError(f"{unknown[0]!r} is not a group column; {example}")
    if missing := [name for name in known if name not in given]:
        raise ValueError(f"the group column {missing[0]!r} is missing; {example}")
    return tuple(parse_key_field(given[name], name, kind) for name, kind in columns)


def parse_key_field(field: object, name: str, kind: SqlType) -> Value:
    """Return the value of a group column from JSON; raise ValueError if it has no such value."""
    try:
        return exact_parser(kind)(field)
    except (ValueError, TypeError) as error:
        raise ValueError(f"group column {name!r} is {kind}: {error}") from None


def load_json(text: str) -> object:
    """Return JSON with exact numbers; raise ValueError if it is none."""
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{text[:80]!r} is not JSON: {error}") from None


def make_key_example(columns: GroupColumns) -> str:
    """Return what the key of a group looks like."""
    if not columns:
        return "{}, because there is no GROUP BY"
    return "{" + ", ".join(f'"{name}": ...' for name, _ in columns) + "}"
