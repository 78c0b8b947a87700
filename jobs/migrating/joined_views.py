"""A query over a view that joins is a query over the join.

CREATE VIEW sold AS SELECT o.amount AS n, c.region FROM orders o JOIN customers c ON ..
SELECT region, SUM(n) FROM sold WHERE n > 0 GROUP BY region
    ──►  SELECT c.region, SUM(o.amount) FROM orders o JOIN customers c ON ..
         WHERE o.amount > 0 GROUP BY c.region

CREATE VIEW sums AS SELECT shop, SUM(x) AS total, COUNT(*) AS n FROM t GROUP BY shop
INSERT INTO out SELECT shop, n FROM sums   ──►   SELECT shop, COUNT(*) AS n FROM t GROUP BY shop
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from jobs.migrating.joins import split_joins
from jobs.migrating.renaming import RenamedToken
from jobs.migrating.select_parts import (
    SelectParts,
    alias_of,
    has_aggregate,
    last_name,
    quote_name,
    read_numbering,
    read_select,
    write,
)
from jobs.migrating.statements import SqlFile
from jobs.migrating.tokens import Cursor, Token
from schemas.limits import QUERY_NESTING_MAX


def merge_joined_view(parts: SelectParts, file: SqlFile) -> SelectParts:
    """Return a query with the view or derived table in its FROM in place, if that joins."""
    merged, seen = parts, set[str]()
    for _ in range(QUERY_NESTING_MAX):
        if len(split_joins(merged.source)) > 1:
            return merged
        found = find_inner(merged.source, file, seen)
        if found is None:
            break
        inner = read_select(found[0], file.sql)
        if is_aggregated(inner) or any(read_numbering(item, "") for item in inner.items):
            break
        merged = _merge(merged, inner, found[1])
    return parts


def _merge(outer: SelectParts, inner: SelectParts, names: Sequence[str]) -> SelectParts:
    columns: dict[str, str] = {}
    for index, item in enumerate(inner.items):
        expression, alias = alias_of(item)
        name = names[index] if index < len(names) else alias
        if name is not None:
            text = write(expression)
            is_name = all(token.kind == "name" or token.text == "." for token in expression)
            columns[name] = text if is_name else f"({text})"

    def rewrite(tokens: Sequence[Token]) -> list[Token]:
        return _replace(tokens, columns)

    where = rewrite(outer.where)
    if inner.where and where:
        both = f"({write(inner.where)}) AND ({write(where)})"
        where = [RenamedToken("name", both, where[0].offset, len(both))]
    return SelectParts(
        outer.offset,
        [rewrite(item) for item in outer.items],
        inner.source,
        outer.distinct,
        where or inner.where,
        [rewrite(key) for key in outer.keys],
        rewrite(outer.having),
    )


def _replace(tokens: Sequence[Token], columns: Mapping[str, str]) -> list[Token]:
    """Return tokens with the columns of a view as what they are; names after AS stay."""
    found: list[Token] = []
    for index, token in enumerate(tokens):
        after = tokens[index - 1].word if index else ""
        follows = tokens[index + 1].text if index + 1 < len(tokens) else ""
        is_column = token.kind == "name" and after != "AS" and follows not in ("(", ".")
        if not is_column or token.value not in columns:
            found.append(token)
            continue
        if after == "." and len(found) > 1:  # VIEW.COLUMN
            start = found[-2].offset
            del found[-2:]
        else:
            start = token.offset
        text = columns[token.value]
        found.append(RenamedToken("name", text, start, token.end - start))
    return found


def merge_projection(parts: SelectParts, file: SqlFile) -> SelectParts:
    """Return the SELECT of the view that a query picks columns of, or else the query itself."""
    merged, seen = parts, set[str]()
    while not (is_aggregated(merged) or _takes_first_rows(merged, file)):
        inner = _pick_columns(merged, file, seen)
        if inner is None:
            return parts
        merged = inner
    return merged


def is_aggregated(parts: SelectParts) -> bool:
    return bool(parts.keys) or parts.distinct or any(map(has_aggregate, parts.items))


def _takes_first_rows(parts: SelectParts, file: SqlFile) -> bool:
    found = find_inner(parts.source, file, set()) if parts.where else None
    inner = None if found is None else read_select(found[0], file.sql)
    numbered = [read_numbering(each, alias_of(each)[1]) for each in inner.items] if inner else []
    return any(each is not None and each.takes_first(parts.where) for each in numbered)


def _pick_columns(parts: SelectParts, file: SqlFile, seen: set[str]) -> SelectParts | None:
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
