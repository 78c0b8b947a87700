"""Print plans as SQL that parses to the same plan, for tests and their messages."""

from __future__ import annotations

from collections.abc import Iterable

from jobs.core.plan.tree import Expression, Plan, WindowBound
from jobs.core.sql.grouping_sets import sets_of_plan
from jobs.core.sql.printer import aggregate_sql, expression_sql, identifier_sql, window_sql


def plan_sql(plan: Plan, table: str = "source") -> str:
    """Return a plan as one query, without derived tables, aliases or positions in GROUP BY."""
    group = {named.name: named.expression for named in plan.group}
    results = {named.name: expression_sql(named.expression, plan) for named in plan.computed}
    results |= {each.name: aggregate_sql(plan, each) for each in plan.aggregates}
    selected = []
    for name in plan.output:
        text = expression_sql(group[name]) if name in group else results[name]
        selected.append(f"{text} AS {identifier_sql(name)}")
    lines = [f"SELECT {', '.join(selected)}", f"FROM {identifier_sql(table)}"]
    if plan.where is not None:
        lines.append(f"WHERE {expression_sql(plan.where)}")
    if plan.grouping_sets > 1:
        windows = [each for each in group.values() if isinstance(each, WindowBound)]
        sets = [_keys_sql(e for e in each if e not in windows) for each in sets_of_plan(plan)]
        texts = ", ".join(f"({', '.join(each)})" for each in sets)
        keys = [*_keys_sql(windows), f"GROUPING SETS ({texts})"]
        lines.append(f"GROUP BY {', '.join(keys)}")
    elif group:
        lines.append("GROUP BY " + ", ".join(_keys_sql(group.values())))
    if plan.having is not None:
        lines.append(f"HAVING {expression_sql(plan.having, plan)}")
    return "\n".join(lines)


def _keys_sql(keys: Iterable[Expression]) -> list[str]:
    """Return keys as in GROUP BY; both bounds of a window are one key."""
    texts = [
        window_sql(each.window) if isinstance(each, WindowBound) else _key_sql(each)
        for each in keys
    ]
    return list(dict.fromkeys(texts))


def _key_sql(expression: Expression) -> str:
    # A whole number in GROUP BY would be the position of a column.
    text = expression_sql(expression)
    return f"CAST({text} AS {expression.type})" if text.isdigit() else text
