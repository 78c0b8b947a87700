"""A query over a view that joins is a query over the join.

CREATE VIEW sold AS SELECT o.amount AS n, c.region FROM orders o JOIN customers c ON ..
SELECT region, SUM(n) FROM sold WHERE n > 0 GROUP BY region
    ──►  SELECT c.region, SUM(o.amount) FROM orders o JOIN customers c ON ..
         WHERE o.amount > 0 GROUP BY c.region
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobs.migrating.joins import split_joins
from jobs.migrating.projections import find_inner, is_aggregated
from jobs.migrating.renaming import RenamedToken
from jobs.migrating.select_parts import SelectParts, alias_of, read_select, write
from jobs.migrating.statements import SqlFile
from jobs.migrating.tokens import Token
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
        if is_aggregated(inner):
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
