"""Walk and rewrite expression trees, and check whether their evaluation can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from jobs.core.plan import tree
from jobs.core.plan.scalar_functions import FUNCTIONS
from jobs.core.plan.typing_rules import cast_can_fail
from schemas.types.sql_types import DECIMAL_PRECISION_MAX, SqlType


def operands(expression: tree.Expression) -> tuple[tree.Expression, ...]:
    """Return the expressions directly inside an expression, in the order of evaluation."""
    match expression:
        case tree.Cast() | tree.Negate() | tree.Not() | tree.IsNull() | tree.Like():
            return (expression.operand,)
        case tree.Arithmetic() | tree.Compare() | tree.Logical():
            return (expression.left, expression.right)
        case tree.In():
            return (expression.operand, *expression.choices)
        case tree.Case():
            flat = tuple(each for branch in expression.branches for each in branch)
            return flat if expression.otherwise is None else (*flat, expression.otherwise)
        case tree.Call():
            return expression.arguments
        case tree.Composite():
            return expression.parts
        case tree.WindowBound():
            return (expression.window.time,)
        case _:
            return ()


def walk(expression: tree.Expression) -> Iterator[tree.Expression]:
    """Yield an expression and all expressions in it, a shared one only once."""
    seen: set[int] = set()
    waiting = [expression]
    while waiting:
        current = waiting.pop()
        if id(current) not in seen:
            seen.add(id(current))
            yield current
            waiting.extend(reversed(operands(current)))


def replace_parts(
    expression: tree.Expression, change: Callable[[tree.Expression], tree.Expression | None]
) -> tree.Expression:
    """Return the expression with parts replaced, from the outside in.

    If `change` returns None for a part, the part stays and its own parts are visited."""

    def rebuild(part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple(map(rebuild, part))
        if isinstance(part, tree.Expression):
            return replace_parts(part, change)
        return part

    if (changed := change(expression)) is not None:
        return changed
    values = {each.name: getattr(expression, each.name) for each in fields(expression)}
    return replace(expression, **{name: rebuild(value) for name, value in values.items()})


def node_can_fail(expression: tree.Expression) -> bool:
    """Return whether this node can fail for a row although its operands do not."""
    match expression:
        case tree.Cast():
            return not expression.lenient and cast_can_fail(
                expression.operand.type, expression.type
            )
        case tree.Arithmetic():
            return expression.op in ("/", "%") or _overflows(expression.type)
        case tree.Negate():
            return expression.type.integer
        case tree.Call():
            if expression.function == "ABS":
                return expression.type.integer
            if expression.function == "ROUND":
                return len(expression.arguments) > 1 and _overflows(expression.type)
            return expression.function != "GROUP_ID" and FUNCTIONS[expression.function].can_fail
        case tree.WindowBound():
            return not expression.end  # a row without time has no window; only its start fails
        case _:
            return False


def _overflows(sql_type: SqlType) -> bool:
    # A DECIMAL result of fewer than 38 digits has room for every value.
    return sql_type.integer or sql_type.precision == DECIMAL_PRECISION_MAX


def can_fail(expression: tree.Expression) -> bool:
    """Return whether evaluating the expression can fail for a row."""
    return any(node_can_fail(each) for each in walk(expression))


def plan_can_fail(plan: tree.Plan) -> bool:
    """Return whether a row expression of the plan can fail."""
    rows = [named.expression for named in (*plan.group, *plan.arguments)]
    return any(map(can_fail, rows if plan.where is None else [plan.where, *rows]))
