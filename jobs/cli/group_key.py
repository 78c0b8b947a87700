"""Group keys on the command line: the value of one column, or an object of all columns."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from jobs.cli.errors import UsageError
from jobs.core.fold.state import Key
from jobs.core.plan.tree import Named, Plan
from jobs.table.listing import exact_parser
from schemas.types.sql_types import Kind


def parse_group_key(text: str | None, plan: Plan) -> Key:
    """Return the key that `text` names. Without GROUP BY the one group needs no name.

    A group of one column is its value as JSON; a STRING needs no quotes. A group of several
    columns is an object: {"name": "a", "day": null}. So is a text that begins with `{`.
    """
    columns = plan.group
    if text is None or text.lstrip().startswith("{"):
        return _parse_object({} if text is None else _load_json(text), columns)
    if len(columns) != 1:
        raise UsageError(f"write the group as an object of its columns, {_write_example(columns)}")
    return (_convert(_parse_scalar(text, columns[0]), columns[0]),)


def _parse_object(given: Any, columns: tuple[Named, ...]) -> Key:
    known = {named.name for named in columns}
    unknown = [name for name in given if name not in known]
    missing = [named.name for named in columns if named.name not in given]
    if unknown:
        raise UsageError(
            f"{unknown[0]!r} is not a group column; write the group as {_write_example(columns)}"
        )
    if missing:
        raise UsageError(
            f"the group column {missing[0]!r} is missing; write the group as "
            f"{_write_example(columns)}"
        )
    return tuple(_convert(given[named.name], named) for named in columns)


def _parse_scalar(text: str, column: Named) -> Any:
    if column.type.kind is Kind.STRING and text != "null" and not text.startswith('"'):
        return text
    try:
        return _load_json(text)
    except UsageError:
        if column.type.kind is Kind.STRING or not text.startswith('"'):
            return text
        raise


def _load_json(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{text[:80]!r} is not JSON: {error}") from None


def _convert(field: Any, column: Named) -> Any:
    try:
        return exact_parser(column.type)(field)
    except (ValueError, TypeError) as error:
        raise UsageError(f"group column {column.name!r} is {column.type}: {error}") from None


def _write_example(columns: tuple[Named, ...]) -> str:
    if not columns:
        return "{}, because there is no GROUP BY"
    return "{" + ", ".join(f'"{named.name}": ...' for named in columns) + "}"
