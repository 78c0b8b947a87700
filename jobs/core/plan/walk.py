"""Walk and rewrite expression trees, and check whether their evaluation can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from jobs.core.plan.scalar_functions import FUNCTIONS
from jobs.core.plan.tree import (
    Arithmetic,
    Call,
    Case,
    Cast,
    Compare,
    Composite,
    Expression,
    In,
    IsNull,
    Like,
    Logical,
    Negate,
    Not,
    Plan,
    WindowBound,
)
from jobs.core.plan.typing_rules import cast_can_fail
from schemas.types.sql_types import DECIMAL_PRECISION_MAX, SqlType


def operands(expression: Expression) -> tuple[Expression, ...]:
    """Return the expressions directly inside an expression, in the order of evaluation."""
    match expression:
        case Cast() | Negate() | Not() | IsNull() | Like():
            return (expression.operand,)
        case Arithmetic() | Compare() | Logical():
            return (expression.left, expression.right)
        case In():
            return (expression.operand, *expression.choices)
        case Case():
            flat = tuple(each for branch in expression.branches for each in branch)
            return flat if expression.otherwise is None else (*flat, expression.otherwise)
        case Call():
            return expression.arguments
        case Composite():
            return expression.parts
        case WindowBound():
            return (expression.window.time,)
        case _:
            return ()


def walk(expression: Expression) -> Iterator[Expression]:
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
    expression: Expression, change: Callable[[Expression], Expression | None]
) -> Expression:
    """Return the expression with parts replaced, from the outside in.

    If `change` returns None for a part, the part stays and its own parts are visited."""

    def rebuild(part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple(map(rebuild, part))
        if isinstance(part, Expression):
            return replace_parts(part, change)
        return part

    if (changed := change(expression)) is not None:
        return changed
    values = {each.name: getattr(expression, each.name) for each in fields(expression)}
    return replace(expression, **{name: rebuild(value) for name, value in values.items()})


def node_can_fail(expression: Expression) -> bool:
    """Return whether this node can fail for a row although its operands do not."""
    match expression:
        case Cast():
            return not expression.lenient and cast_can_fail(
                expression.operand.type, expression.type
            )
        case Arithmetic():
            return expression.op in ("/", "%") or _overflows(expression.type)
        case Negate():
            return expression.type.integer
        case Call():
            if expression.function == "ABS":
                return expression.type.integer
            if expression.function == "ROUND":
                return len(expression.arguments) > 1 and _overflows(expression.type)
            return FUNCTIONS[expression.function].can_fail
        case WindowBound():
            return not expression.end  # a row without time has no window; only its start fails
        case _:
            return False


def _overflows(sql_type: SqlType) -> bool:
    # A DECIMAL result of fewer than 38 digits has room for every value.
    return sql_type.integer or sql_type.precision == DECIMAL_PRECISION_MAX


def can_fail(expression: Expression) -> bool:
    """Return whether evaluating the expression can fail for a row."""
    return any(node_can_fail(each) for each in walk(expression))


def plan_can_fail(plan: Plan) -> bool:
    """Return whether a row expression of the plan can fail."""
    rows = [named.expression for named in (*plan.group, *plan.arguments)]
    return any(map(can_fail, rows if plan.where is None else [plan.where, *rows]))
