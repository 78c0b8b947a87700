"""A query that only picks columns of an aggregated view is the query of that view.

CREATE VIEW sums AS SELECT shop, SUM(x) AS total, COUNT(*) AS n FROM t GROUP BY shop
INSERT INTO out SELECT shop, n FROM sums   ──►   SELECT shop, COUNT(*) AS n FROM t GROUP BY shop
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jobs.migrating.select_parts import (
    SelectParts,
    alias_of,
    has_aggregate,
    last_name,
    quote_name,
    read_select,
)
from jobs.migrating.statements import SqlFile
from jobs.migrating.tokens import Cursor, Token


def merge_projection(parts: SelectParts, file: SqlFile) -> SelectParts:
    """Return the SELECT of the view that a query picks columns of, or else the query itself."""
    merged, seen = parts, set[str]()
    while not is_aggregated(merged):
        inner = _merge(merged, file, seen)
        if inner is None:
            return parts
        merged = inner
    return merged


def is_aggregated(parts: SelectParts) -> bool:
    return bool(parts.keys) or parts.distinct or any(map(has_aggregate, parts.items))


def _merge(parts: SelectParts, file: SqlFile, seen: set[str]) -> SelectParts | None:
    """Return the inner SELECT with the columns that the outer one picks."""
    found = None if parts.where or parts.having else find_inner(parts.source, file, seen)
    if found is None:
        return None
    inner = read_select(found[0], file.sql)
    names: list[str | None] = [*found[1]] or [alias_of(item)[1] for item in inner.items]
    columns = {
        name: alias_of(item)[0] for name, item in zip(names, inner.items, strict=False) if name
    }
    if inner.distinct or len(columns) != len(inner.items):  # an equal row would come twice
        return None
    picked: list[list[Token]] = []
    for item in parts.items:
        expression, label = alias_of(item)
        name = last_name(expression)
        if name not in columns and name != "*":
            return None
        pairs = [(each, each) for each in columns] if name == "*" else [(name, label or name)]
        for column, shown in pairs:
            at = columns[column][-1].end
            alias = [Token("name", "AS", at + 1), Token("name", quote_name(shown), at + 4)]
            picked.append([*columns[column], *alias])
    return replace(inner, items=picked)


def find_inner(
    source: Sequence[Token], file: SqlFile, seen: set[str]
) -> tuple[Sequence[Token], Sequence[str]] | None:
    """Return the query of a view or derived table, and the names of its columns."""
    cursor = Cursor(source, file.sql)
    if cursor.take("("):
        inside = cursor.until(")")
        return (inside, ()) if inside and inside[0].word == "SELECT" else None
    view = file.views.get(cursor.name().value) if cursor.peek() not in ("", "TABLE") else None
    if view is None or view.name in seen:
        return None
    seen.add(view.name)
    return view.query, view.columns
