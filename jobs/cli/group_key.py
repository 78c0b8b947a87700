"""Group keys on the command line: the value of one column, or an object of all columns."""

from __future__ import annotations

from jobs.cli.errors import UsageError
from jobs.core.fold.state import Key
from jobs.core.plan.tree import Plan
from jobs.reading.group_key import load_json, make_key_example, parse_key_field, parse_key_object
from schemas.types.sql_types import Kind, SqlType


def parse_group_key(text: str | None, plan: Plan) -> Key:
    """Return the key that `text` names. Without GROUP BY the one group needs no name.

    A group of one column is its value as JSON; a STRING needs no quotes. A group of several
    columns is an object: {"name": "a", "day": null}. So is a text that begins with `{`.
    """
    columns = plan.key
    try:
        if text is None or text.lstrip().startswith("{"):
            return parse_key_object(text or "{}", columns)
        if len(columns) != 1:
            raise ValueError(
                f"write the group as an object of its columns, {make_key_example(columns)}"
            )
        name, kind = columns[0]
        return (parse_key_field(_parse_scalar(text, kind), name, kind),)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _parse_scalar(text: str, kind: SqlType) -> object:
    if kind.kind is Kind.STRING and text != "null" and not text.startswith('"'):
        return text
    try:
        return load_json(text)
    except ValueError:
        if kind.kind is Kind.STRING or not text.startswith('"'):
            return text
        raise
