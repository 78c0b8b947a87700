"""Aggregate calls: one aggregate as a query writes it, read and typed, or the reason why not.

    STRING_AGG(DISTINCT x, ', ' ORDER BY y) FILTER (WHERE c)
       └► function, DISTINCT, constants, order, and one argument: x, ROW(y, x), CASE WHEN c THEN ...

What a call may have follows from the table of functions (`accumulators.FUNCTIONS`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from jobs.core.aggregates import FUNCTIONS, SYNONYMS, Constant, Distinction, Function, Order
from jobs.core.plan import typing_rules
from jobs.core.plan.tree import Case, Composite, Expression, Ordering
from jobs.core.plan.tree import Constant as Literal
from jobs.core.plan.typing_rules import TypeProblem
from jobs.core.sql.problems import Reading, function_name
from schemas.limits import TOP_K_MAX
from schemas.types.sql_types import INT, SqlType, row_of

AGGREGATES = (*FUNCTIONS, *SYNONYMS)

BY_ARRIVAL = (
    "{} without ORDER BY would follow the order of arrival, which no retraction can undo: it "
    "names a value and not the row that brought it, and partitions have no order between them"
)
REFUSED = {
    "APPROX_COUNT_DISTINCT": (
        "APPROX_COUNT_DISTINCT is not possible: a sketch cannot forget what is retracted",
        "COUNT(DISTINCT x)",
    ),
    "APPROX_PERCENTILE": (
        "APPROX_PERCENTILE is not possible: a sketch cannot forget what is retracted",
        "PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x)",
    ),
    "GROUP_CONCAT": ("GROUP_CONCAT is not supported", "STRING_AGG(x, ', ' ORDER BY x)"),
    "COLLECT": ("COLLECT is not supported: there is no MULTISET", "ARRAY_AGG(x)"),
    "JSON_ARRAYAGG": ("JSON_ARRAYAGG is not supported", "ARRAY_AGG(x)"),
}
_FRACTION = re.compile(r"\d{0,2}(\.\d{0,18})?")
_WRAPPERS = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)

Read = Callable[[exp.Expr, str], Expression]


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """A call, understood. Its argument is None where it counts rows."""

    function: str
    argument: Expression | None
    type: SqlType
    distinct: bool = False
    parameters: tuple[str | int, ...] = ()
    order: tuple[Ordering, ...] = ()


@dataclass(slots=True)
class _Parts:
    """A call taken apart."""

    call: exp.Expr  # the function with its parentheses
    name: str  # as it is written
    function: Function
    arguments: list[exp.Expr]
    distinct: bool = False
    order: tuple[exp.Expr, ...] = ()
    within_group: bool = False
    condition: exp.Expr | None = None
    keeps_nulls: bool | None = None


def is_call(node: exp.Expr) -> bool:
    """Whether a node is the call of an aggregate, or of one that is refused."""
    name = function_name(node)
    return name in FUNCTIONS or name in SYNONYMS or name in REFUSED or isinstance(node, _WRAPPERS)


def written_name(node: exp.Expr) -> str:
    """The name of the function as it is written."""
    while isinstance(node, _WRAPPERS):
        node = node.this
    return function_name(node)


def named_in(node: exp.Expr) -> exp.Expr:
    """The part of a call that gives its result a name: the first argument, or what it is within."""
    while isinstance(node, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        node = node.this
    if isinstance(node, exp.WithinGroup):
        first: exp.Expr = node.expression
        return node.this.expressions[0] if node.this.find(exp.Column) else first
    arguments: list[exp.Expr] = node.expressions
    return arguments[0] if arguments else node


def read_call(reading: Reading, node: exp.Expr, read: Read) -> AggregateCall:
    """The call; `read(node, where)` reads a row expression that is part of it."""
    parts = _apart(reading, node)
    function, name = parts.function, parts.name
    order = [_direction(reading, each) for each in parts.order]
    parameters = _parameters(reading, parts)
    distinct = parts.distinct
    if distinct and function.distinction is Distinction.REFUSED:
        raise reading.refused(f"{name}(DISTINCT ...) says nothing: use {name}(...)", parts.call)
    distinct = distinct and function.distinction is Distinction.MATTERS
    if function.name == "COUNT" and len(parts.arguments) == 1 and not parts.distinct:
        rows = _counted_rows(reading, parts, read)
        if rows is not None:
            return rows
    values = [read(each, name) for each in parts.arguments]
    for value, place in zip(values, parts.arguments, strict=True):
        with reading.at(place):
            typing_rules.typed(value)
    by = [read(each.this, name) for each in parts.order]
    with reading.at(parts.arguments[0]):
        result = function.result(values[0].type)
    argument, directions = _argument(reading, parts, values, by, order)
    argument = _filtered(reading, parts, argument, read)
    return AggregateCall(function.name, argument, result, distinct, parameters, directions)


def argument_name(expression: Expression) -> str | None:
    """A name for a composite argument, from the columns in it."""
    while isinstance(expression, Case) and len(expression.branches) == 1:
        expression = expression.branches[0][1]
    if not isinstance(expression, Composite):
        return None
    names = [getattr(part, "name", "") for part in reversed(expression.parts)]
    return "_by_".join(filter(None, (names[0], "_".join(filter(None, names[1:])))))


# --- taking a call apart -------------------------------------------------------------------------


def _apart(reading: Reading, node: exp.Expr) -> _Parts:
    condition, within, keeps_nulls = None, None, None
    while isinstance(node, _WRAPPERS):
        if isinstance(node, exp.Filter):
            if not is_call(node.this):
                raise reading.refused("FILTER belongs to an aggregate", node)
            reading.only(node, "this", "expression")
            condition = node.expression.this
        elif isinstance(node, exp.WithinGroup):
            reading.only(node, "this", "expression")
            within = node.expression
        else:
            keeps_nulls = isinstance(node, exp.RespectNulls)
        node = node.this
    name = function_name(node)
    if name in REFUSED:
        raise reading.refused(REFUSED[name][0], node, REFUSED[name][1])
    function = FUNCTIONS.get(SYNONYMS.get(name, name))
    if function is None:
        raise reading.refused("this belongs to an aggregate", node)
    reading.only(node, "this", "expressions")
    parts = _Parts(node, name, function, [], condition=condition, keeps_nulls=keeps_nulls)
    for argument in node.expressions:
        _take(reading, parts, argument)
    if within is not None:
        if parts.order or function.order not in (Order.OPTIONAL, Order.NEEDED, Order.VALUE):
            raise reading.refused(f"{name} takes no WITHIN GROUP", node, function.example)
        reading.only(within, "expressions")
        parts.order, parts.within_group = tuple(within.expressions), True
    _check(reading, parts)
    return parts


def _take(reading: Reading, parts: _Parts, argument: exp.Expr) -> None:
    """One argument with what the parser hangs on it: ORDER BY, DISTINCT, IGNORE NULLS."""
    if isinstance(argument, exp.Order):
        reading.only(argument, "this", "expressions")
        parts.order = tuple(argument.expressions)
        _take(reading, parts, argument.this)
    elif isinstance(argument, exp.Distinct):
        reading.only(argument, "expressions")
        parts.distinct = True
        for each in argument.expressions:
            _take(reading, parts, each)
    elif isinstance(argument, exp.IgnoreNulls | exp.RespectNulls):
        parts.keeps_nulls = isinstance(argument, exp.RespectNulls)
        _take(reading, parts, argument.this)
    else:
        parts.arguments.append(argument)


def _check(reading: Reading, parts: _Parts) -> None:
    """Whether there is as much of everything as the function takes."""
    function, name, node = parts.function, parts.name, parts.call
    if parts.order and function.order in (Order.NONE, Order.ARGUMENT):
        raise reading.refused(f"{name} takes no ORDER BY", node, function.example)
    if function.order is Order.NEEDED and not parts.order:
        reason = BY_ARRIVAL.format(name)
        raise reading.refused(reason, node, f"{name}(x ORDER BY y)")
    if function.order is Order.VALUE and parts.order:
        if not parts.within_group:
            raise reading.refused(f"{name} takes no ORDER BY inside", node, function.example)
        if len(parts.order) > 1:
            raise reading.refused(f"{name} is of one value", parts.order[1], function.example)
        parts.arguments.insert(0, parts.order[0].this)
    if parts.keeps_nulls and not function.keeps_nulls:
        raise reading.refused(f"{name} leaves NULLs out; RESPECT NULLS is for ARRAY_AGG", node)
    many = function.name == "COUNT" and parts.distinct
    least = 1 + (function.order is Order.ARGUMENT)
    most = least + (function.constant is not None)
    if function.constant not in (None, Constant.SEPARATOR):
        least = most
    if not (least <= len(parts.arguments) <= most or (many and parts.arguments)):
        takes = {1: "one argument", 2: "two arguments"}[most]
        shape = function.example if most > 1 or function.order is Order.VALUE else f"{name}(x)"
        raise reading.refused(f"{name} takes {takes}", node, shape)


# --- its parts -----------------------------------------------------------------------------------


def _counted_rows(reading: Reading, parts: _Parts, read: Read) -> AggregateCall | None:
    """COUNT(*), or COUNT of a constant, which is counted for every row; None for any other."""
    (node,) = parts.arguments
    argument: Expression = Literal(1, INT)
    if isinstance(node, exp.Star):
        reading.only(node)
    else:
        argument = read(node, parts.name)
        if not isinstance(argument, Literal) or argument.value is None:
            return None
    counted = parts.function.result(INT)
    if parts.condition is None:
        return AggregateCall("COUNT", None, counted)
    return AggregateCall("COUNT", _filtered(reading, parts, argument, read), counted)


def _filtered(reading: Reading, parts: _Parts, argument: Expression, read: Read) -> Expression:
    """FILTER (WHERE c) is CASE WHEN c THEN argument END."""
    if parts.condition is None:
        return argument
    condition = read(parts.condition, "FILTER")
    with reading.at(parts.condition):
        condition = typing_rules.condition(condition, "FILTER")
    return Case(((condition, argument),), None, argument.type)


def _argument(
    reading: Reading,
    parts: _Parts,
    values: list[Expression],
    by: list[Expression],
    order: list[Ordering],
) -> tuple[Expression, tuple[Ordering, ...]]:
    """The one argument of the accumulators, and a direction for each of its parts."""
    function, value = parts.function, values[0]
    if function.order is Order.VALUE:
        if order and order[0].nulls_first is order[0].descending:
            raise reading.refused("there are no NULLs among the values", parts.order[0])
        return value, tuple(order)
    if len(values) > 1:  # COUNT(DISTINCT x, y); ARG_MAX(x, y): by y, then by x
        turned = [*values[1:], value] if function.order is Order.ARGUMENT else values
        return Composite(tuple(turned), row_of(*(each.type for each in turned)), "any"), ()
    if value in by:  # what comes behind the value itself decides nothing any more
        at = by.index(value)
        by, order = by[:at], order[: at + 1]
    elif by:
        # Rows that are equal in the order come in the order of their values, in its direction.
        order = [*order, Ordering(order[-1].descending, not order[-1].descending)]
    if parts.distinct and by:
        message = "with DISTINCT the order has to be that of the values themselves"
        raise reading.refused(message, parts.order[0], f"{parts.name}(DISTINCT x ORDER BY x)")
    for each, place in zip(by, parts.order, strict=False):
        with reading.at(place):
            typing_rules.typed(each)
    keeps_nulls = function.keeps_nulls and parts.keeps_nulls is not False
    if not by and not keeps_nulls:
        return value, tuple(order)
    rows = (*by, value)
    kind = row_of(*(each.type for each in rows))
    return Composite(rows, kind, "never" if keeps_nulls else "last"), tuple(order)


def _direction(reading: Reading, ordered: exp.Expr) -> Ordering:
    reading.only(ordered, "this", "desc", "nulls_first")
    return Ordering(bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first")))


def _parameters(reading: Reading, parts: _Parts) -> tuple[str | int, ...]:
    """The constants of a call; they leave the arguments."""
    constant = parts.function.constant
    if constant is None:
        return ()
    behind = 1 + (parts.function.order is Order.ARGUMENT)
    node = parts.arguments.pop(behind) if len(parts.arguments) > behind else None
    try:
        return (_CONSTANTS[constant](node),)
    except TypeProblem as problem:
        raise reading.refused(problem.message, node or parts.call, problem.hint) from None


def _separator(node: exp.Expr | None) -> str:
    if node is None:
        return ","
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise TypeProblem("the separator is a string, written out", "', '")
    return str(node.name)


def _count(node: exp.Expr | None) -> int:
    digits = node.name if isinstance(node, exp.Literal) and not node.is_string else ""
    if not re.fullmatch(r"\d{1,9}", digits) or not 1 <= int(digits) <= TOP_K_MAX:
        raise TypeProblem(f"k is a whole number from 1 to {TOP_K_MAX}, written out", "10")
    return int(digits)


def _fraction(node: exp.Expr | None) -> str:
    digits = node.name if isinstance(node, exp.Literal) and not node.is_string else "."
    if not _FRACTION.fullmatch(digits) or digits == "." or not 0 <= Fraction(digits) <= 1:
        raise TypeProblem("p is a number from 0 to 1, written out", "0.95")
    return str(Fraction(digits))


_CONSTANTS: dict[Constant, Callable[[exp.Expr | None], str | int]] = {
    Constant.SEPARATOR: _separator,
    Constant.COUNT: _count,
    Constant.FRACTION: _fraction,
}

__all__ = [
    "AGGREGATES",
    "AggregateCall",
    "argument_name",
    "is_call",
    "named_in",
    "read_call",
    "written_name",
]
