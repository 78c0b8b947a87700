"""A query over a view or a derived table as one query over what that reads.

CREATE VIEW sold AS SELECT o.amount AS n, c.region FROM orders o JOIN customers c ON ..
SELECT region, SUM(n) FROM sold WHERE n > 0 GROUP BY region
    ──►  SELECT c.region, SUM(o.amount) FROM orders o JOIN customers c ON ..
         WHERE o.amount > 0 GROUP BY c.region

CREATE VIEW sums AS SELECT shop, SUM(x) AS total, COUNT(*) AS n FROM t GROUP BY shop
INSERT INTO out SELECT shop, n FROM sums   ──►   SELECT shop, COUNT(*) AS n FROM t GROUP BY shop
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from jobs.migrating import selects
from jobs.migrating.dialect import column, identifier
from jobs.migrating.statements import SqlFile
from schemas.limits import QUERY_NESTING_MAX


def merge_views(select: exp.Select, file: SqlFile) -> exp.Select:
    """Return a query over a join in a view, or one that picks results of a view, as one SELECT."""
    merged, best, seen = select, select, set[str]()
    for _ in range(QUERY_NESTING_MAX):
        found = None if merged.args.get("joins") else _find_inner(merged, file, seen)
        if found is None:
            return merged if merged.args.get("joins") else best
        inner, names = found
        columns = dict(
            zip(names or map(selects.label_of, inner.expressions), inner.expressions, strict=False)
        )
        picks = _picks(merged, inner, columns)
        if not picks and (
            selects.is_aggregated(inner) or any(map(selects.read_numbering, inner.expressions))
        ):
            return best
        merged = _merge(merged.copy(), inner, columns)
        if picks and (selects.is_aggregated(inner) or _takes_first_rows(inner, file)):
            best = merged
    return best


def _picks(outer: exp.Select, inner: exp.Select, columns: Mapping[str | None, exp.Expr]) -> bool:
    """Return whether a query has columns of its view and no more: each of the view's rows once."""
    whole = len(columns.keys() - {None}) == len(inner.expressions)
    filtered = outer.args.get("where") or outer.args.get("having") or inner.args.get("distinct")
    items = (
        each.is_star or selects.last_name(each.unalias()) in columns for each in outer.expressions
    )
    return whole and not filtered and not selects.is_aggregated(outer) and all(items)


def _merge(
    outer: exp.Select, inner: exp.Select, columns: Mapping[str | None, exp.Expr]
) -> exp.Select:
    """Put the columns and clauses of a view into the query over it."""

    def insert(tree: exp.Expr) -> exp.Expr:
        if not isinstance(tree, exp.Column) or tree.name not in columns:
            return tree
        value = columns[tree.name].unalias().copy()
        is_whole = isinstance(value, exp.Column | exp.Dot) or isinstance(tree.parent, exp.Alias)
        return value if is_whole else exp.Paren(this=value)

    items: list[exp.Expr] = []
    for item in outer.expressions:
        expanded = [column(name) for name in columns if name] if item.is_star else [item]
        for each in expanded if None not in columns else [item]:
            is_named = isinstance(each, exp.Column) and not each.is_star  # by the view's name
            items.append(exp.Alias(this=each, alias=identifier(each.name)) if is_named else each)
    outer.set("expressions", items)
    selects.rewrite(outer, insert)
    for name in ("from_", "joins", "group", "having"):
        outer.set(name, inner.args.get(name) or outer.args.get(name))
    conditions = [each.args["where"] for each in (inner, outer) if each.args.get("where")]
    if len(conditions) > 1:
        left, right = (exp.Paren(this=each.this) for each in conditions)
        conditions = [exp.Where(this=exp.And(this=left, expression=right))]
    outer.set("where", next(iter(conditions), None))
    return outer


def _takes_first_rows(select: exp.Select, file: SqlFile) -> bool:
    where = select.args.get("where")
    found = _find_inner(select, file, set()) if where else None
    numbered = map(selects.read_numbering, found[0].expressions) if found else ()
    return any(each is not None and each.takes_first(where) for each in numbered)


def _find_inner(
    select: exp.Select, file: SqlFile, seen: set[str]
) -> tuple[exp.Select, Sequence[str]] | None:
    """Return the SELECT of the view or derived table that FROM is, and the names of its columns."""
    item = selects.check_clauses(select).args["from_"].this
    if select.args.get("joins") or "window" in item.meta or not selects.is_plain_item(item):
        return None
    if isinstance(item, exp.Subquery):
        inner = item.this
        return (selects.check_clauses(inner.copy()), ()) if isinstance(inner, exp.Select) else None
    view = file.views.get(item.name)
    if view is None or view.name in seen:
        return None
    seen.add(view.name)
    return selects.check_clauses(view.select()), view.columns
