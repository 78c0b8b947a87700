"""Row expressions as trees: what is inside of one, and whether evaluating it can fail a row."""

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
from jobs.core.plan.typing_rules import cast_fails
from schemas.types.sql_types import DECIMAL_PRECISION_MAX, SqlType


def parts(expression: Expression) -> tuple[Expression, ...]:
    """The expressions directly inside an expression, in the order of evaluation."""
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
    """An expression and everything in it; what is shared comes once."""
    seen: set[int] = set()
    waiting = [expression]
    while waiting:
        current = waiting.pop()
        if id(current) not in seen:
            seen.add(id(current))
            yield current
            waiting.extend(reversed(parts(current)))


def replaced(
    expression: Expression, change: Callable[[Expression], Expression | None]
) -> Expression:
    """The expression with parts of it changed, from the outside: None leaves a part as it is, with
    its own parts changed."""

    def made(part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple(map(made, part))
        if isinstance(part, Expression):
            return replaced(part, change)
        return part

    if (changed := change(expression)) is not None:
        return changed
    known = {each.name: getattr(expression, each.name) for each in fields(expression)}
    return replace(expression, **{name: made(value) for name, value in known.items()})


def fails_itself(expression: Expression) -> bool:
    """Whether evaluating this node may fail a row although its operands did not."""
    match expression:
        case Cast():
            return not expression.lenient and cast_fails(expression.operand.type, expression.type)
        case Arithmetic():
            return expression.op in ("/", "%") or _overflows(expression.type)
        case Negate():
            return expression.type.integer
        case Call():
            if expression.function == "ABS":
                return expression.type.integer
            if expression.function == "ROUND":
                return len(expression.arguments) > 1 and _overflows(expression.type)
            return FUNCTIONS[expression.function].fails
        case WindowBound():
            return not expression.end  # a row without time has no window; told once, at its start
        case _:
            return False


def _overflows(sql_type: SqlType) -> bool:
    # A DECIMAL result of fewer than 38 digits was given room for every value.
    return sql_type.integer or sql_type.precision == DECIMAL_PRECISION_MAX


def fails(expression: Expression) -> bool:
    return any(fails_itself(each) for each in walk(expression))


def plan_fails(plan: Plan) -> bool:
    """Whether any row can fail the plan's expressions."""
    rows = [named.expression for named in (*plan.group, *plan.arguments)]
    return any(map(fails, rows if plan.where is None else [plan.where, *rows]))
