"""A group as the command line names it: the value of its column, or an object of its columns."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from jobs.cli.errors import UsageError
from jobs.core.fold.state import Key
from jobs.core.plan.tree import Named, Plan
from jobs.core.values.json_values import parser
from schemas.types.sql_types import Kind


def group_key(text: str | None, plan: Plan) -> Key:
    """The key that `text` names. Without GROUP BY there is one group, which needs no name.

    A group of one column is its value: JSON, or for text also the bare text. Several columns,
    and a text that begins with `{`, are an object: {"name": "a", "day": null}.
    """
    columns = plan.group
    if text is None or text.lstrip().startswith("{"):
        return _of_object({} if text is None else _json(text), columns)
    if len(columns) != 1:
        raise UsageError(f"name the group as an object of its columns, {_example(columns)}")
    return (_value(_scalar(text, columns[0]), columns[0]),)


def _of_object(given: Any, columns: tuple[Named, ...]) -> Key:
    known = {named.name for named in columns}
    unknown = [name for name in given if name not in known]
    missing = [named.name for named in columns if named.name not in given]
    if unknown:
        raise UsageError(
            f"{unknown[0]!r} is no group column; a group is named like {_example(columns)}"
        )
    if missing:
        raise UsageError(
            f"the group's column {missing[0]!r} is not given; a group is named like "
            f"{_example(columns)}"
        )
    return tuple(_value(given[named.name], named) for named in columns)


def _scalar(text: str, column: Named) -> Any:
    if column.type.kind is Kind.STRING and text != "null" and not text.startswith('"'):
        return text
    try:
        return _json(text)
    except UsageError:
        if column.type.kind is Kind.STRING or not text.startswith('"'):
            return text
        raise


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{text[:80]!r} is not JSON: {error}") from None


def _value(field: Any, column: Named) -> Any:
    try:
        return parser(column.type)(field)
    except (ValueError, TypeError) as error:
        raise UsageError(f"group column {column.name!r} is {column.type}: {error}") from None


def _example(columns: tuple[Named, ...]) -> str:
    if not columns:
        return "{}, for there is no GROUP BY"
    return "{" + ", ".join(f'"{named.name}": ...' for named in columns) + "}"
