"""Read aggregate calls: turn a call in a query into a typed AggregateCall, or refuse it.

    STRING_AGG(DISTINCT x, ', ' ORDER BY y) FILTER (WHERE c)
       └► function, DISTINCT, constants, order, and one argument: x, ROW(y, x), CASE WHEN c THEN ...

The table of functions (jobs.core.aggregates.FUNCTIONS) says which parts a call may have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal as OneOf

from sqlglot import exp

from jobs.core.aggregates import FUNCTIONS, SYNONYMS, Constant, Distinction, Function, Order
from jobs.core.plan import typing_rules
from jobs.core.plan.relations import bare_name
from jobs.core.plan.tree import Case, Composite, Expression, Ordering
from jobs.core.plan.tree import Constant as Literal
from jobs.core.plan.typing_rules import TypeProblem
from jobs.core.sql import refused_names
from jobs.core.sql.dialect import Refusal
from jobs.core.sql.problems import ProblemReporter, function_name
from schemas.limits import TOP_K_MAX
from schemas.types.sql_types import BOOLEAN, INT, STRING, Kind, SqlType, row_of

AGGREGATES = (*FUNCTIONS, *SYNONYMS)

BY_ARRIVAL = (
    "{} without ORDER BY would depend on the order of arrival: partitions have no common order, "
    "and a retraction names a value, not the row that added it"
)
_TIMES = (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ, Kind.BIGINT)
_OPERATOR_CLASS = "operator class"  # in the metadata of a node
_FRACTION = re.compile(r"\d{0,2}(\.\d{0,18})?")
_WRAPPERS = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)

Read = Callable[[exp.Expr, str], Expression]


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """A typed call; its argument is None if it counts rows."""

    function: str
    argument: Expression | None
    type: SqlType
    distinct: bool = False
    parameters: tuple[str | int, ...] = ()
    order: tuple[Ordering, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorClass:
    """A Python class that a spec declares as an aggregate: `functions: {NAME: {class: ...}}`."""

    path: str
    returns: SqlType
    timers: bool | str  # "processing": not event time

    @property
    def clock(self) -> str:
        """Return the clock of its timers as a plan has it; "" without timers."""
        return "timers" if self.timers is True else self.timers or ""

    def read_arguments(self, values: list[Expression]) -> Expression:
        """Return the arguments of a call as one ROW; rows come in its order."""
        kind = row_of(*(each.type for each in values))
        first = kind.items[0]
        if self.timers and (first.kind not in _TIMES or first.textual_time):
            raise TypeProblem(
                f"the first argument of a class with timers is the time of a row, this is {first}",
                "a TIMESTAMP, TIMESTAMP_LTZ, or milliseconds as BIGINT",
            )
        return Composite(tuple(values), kind, "never")


@dataclass(slots=True)
class _CallParts:
    call: exp.Expr  # the function with its parentheses
    name: str  # as in the query
    function: Function
    arguments: list[exp.Expr]
    distinct: bool = False
    order: tuple[exp.Expr, ...] = ()
    within_group: bool = False
    condition: exp.Expr | None = None
    keeps_nulls: bool | None = None
    is_row: bool = False  # COUNT(DISTINCT ROW(x, y)): a row of NULLs is no NULL


def is_call(node: exp.Expr) -> bool:
    """Return whether a node is a call of an aggregate, supported or refused."""
    name = function_name(node)
    known = name in FUNCTIONS or name in SYNONYMS or name in refused_names.AGGREGATES
    return known or isinstance(node, _WRAPPERS) or _OPERATOR_CLASS in node.meta


def mark_classes(select: exp.Select, classes: Mapping[str, OperatorClass]) -> exp.Select:
    """Mark the calls of operators' classes, and return the query."""
    clocks = set()
    for call in select.find_all(exp.Anonymous) if classes else ():
        if (found := classes.get(function_name(call))) is not None:
            call.meta[_OPERATOR_CLASS] = found
            clocks.add(found.clock)
    if len(clocks - {""}) > 1:
        message = "the timers of a query have one clock, event time or processing time"
        raise Refusal(message, 0, "two views")
    return select


def called_function(node: exp.Expr) -> exp.Expr:
    """Return a call without its FILTER, WITHIN GROUP and treatment of NULLs."""
    while isinstance(node, _WRAPPERS):
        node = node.this
    return node


def naming_part(node: exp.Expr) -> exp.Expr:
    """Return the part of a call that names its result: the first argument, or the sort key."""
    while isinstance(node, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        node = node.this
    if isinstance(node, exp.WithinGroup):
        first: exp.Expr = node.expression
        return node.this.expressions[0] if node.this.find(exp.Column) else first
    arguments: list[exp.Expr] = node.expressions
    return arguments[0] if arguments else node


def read_call(reporter: ProblemReporter, node: exp.Expr, read: Read) -> AggregateCall:
    """Return the typed call; `read(node, where)` reads a row expression inside of it."""
    parts = _split_call(reporter, node)
    function, name = parts.function, parts.name
    if (declared := parts.call.meta.get(_OPERATOR_CLASS)) is not None:
        if parts.keeps_nulls is not None:
            message, hint = f"{name} gets NULLs", "FILTER (WHERE x IS NOT NULL)"
            raise reporter.refusal(message, parts.call, hint)
        with reporter.blame(parts.arguments[0]):
            values = [typing_rules.require_type(read(each, name)) for each in parts.arguments]
            argument = declared.read_arguments(values)
        argument = _apply_filter(reporter, parts, argument, read)
        written = (declared.path, str(declared.returns), declared.clock)
        return AggregateCall(name, argument, declared.returns, parts.distinct, written)
    order = [_read_direction(reporter, each) for each in parts.order]
    parameters = _read_parameters(reporter, parts)
    distinct = parts.distinct
    if distinct and function.distinction is Distinction.REFUSED:
        raise reporter.refusal(f"{name}(DISTINCT ...) has no meaning: use {name}(...)", parts.call)
    distinct = distinct and function.distinction is Distinction.MATTERS
    if function.name == "COUNT" and len(parts.arguments) == 1 and not parts.distinct:
        rows = _read_count(reporter, parts, read)
        if rows is not None:
            return rows
    values = [read(each, name) for each in parts.arguments]
    values = [_give_type(function, value) for value in values]
    by = [read(each.this, name) for each in parts.order]
    with reporter.blame(parts.arguments[0]):
        kind = row_of(*(each.type for each in values)) if function.is_of_pairs else values[0].type
        result = function.result(kind)
    if parts.keeps_nulls and function.may_keep_nulls:
        firsts = [index for index, each in enumerate(by) if each not in by[:index]]
        by, order = [by[index] for index in firsts], [order[index] for index in firsts]
        if values[0] in by[:-1]:  # no key after it matters, but calls with the same share a row
            parameters, values = (by.index(values[0]),), by[-1:]
    argument, directions = _make_argument(reporter, parts, values, by, order)
    argument = _apply_filter(reporter, parts, argument, read)
    return AggregateCall(function.name, argument, result, distinct, parameters, directions)


def _give_type(function: Function, value: Expression) -> Expression:
    """Return an argument; a NULL without a type gets the first type that the function takes."""
    if value.type != typing_rules.UNTYPED:
        return value
    for kind in (INT, STRING, BOOLEAN):
        try:
            function.result(kind)
        except TypeProblem:
            continue
        return Literal(None, kind)
    return value


def argument_name(expression: Expression) -> str | None:
    """Return a name for a composite argument, from the columns in it, or None."""
    while isinstance(expression, Case) and len(expression.branches) == 1:
        expression = expression.branches[0][1]
    if not isinstance(expression, Composite):
        return None
    names = [bare_name(getattr(part, "name", "")) for part in reversed(expression.parts)]
    return "_by_".join(filter(None, (names[0], "_".join(filter(None, names[1:])))))


# --- the parts of a call -------------------------------------------------------------------------


def _split_call(reporter: ProblemReporter, node: exp.Expr) -> _CallParts:
    condition, within, keeps_nulls = None, None, None
    while isinstance(node, _WRAPPERS):
        if isinstance(node, exp.Filter):
            if not is_call(node.this):
                raise reporter.refusal("FILTER is only possible with an aggregate", node)
            reporter.require_only(node, "this", "expression")
            condition = node.expression.this
        elif isinstance(node, exp.WithinGroup):
            reporter.require_only(node, "this", "expression")
            within = node.expression
        else:
            keeps_nulls = isinstance(node, exp.RespectNulls)
        node = node.this
    name = function_name(node)
    if (refused := refused_names.AGGREGATES.get(name)) is not None:
        raise reporter.refusal(f"{name} is not supported: {refused.reason}", node, refused.instead)
    function = FUNCTIONS.get(SYNONYMS.get(name, name))
    if _OPERATOR_CLASS in node.meta:
        function = FUNCTIONS[name]
    if function is None:
        raise reporter.refusal("this is only possible with an aggregate", node)
    reporter.require_only(node, "this", "expressions")
    parts = _CallParts(node, name, function, [], condition=condition, keeps_nulls=keeps_nulls)
    for argument in node.expressions:
        _add_argument(reporter, parts, argument)
    if within is not None:
        if parts.order or function.order not in (Order.OPTIONAL, Order.NEEDED, Order.VALUE):
            raise reporter.refusal(f"{name} has no WITHIN GROUP", node, function.example)
        reporter.require_only(within, "expressions")
        parts.order, parts.within_group = tuple(within.expressions), True
    if function.name == "COUNT" and parts.distinct and len(parts.arguments) == 1:
        row = parts.arguments[0]
        if function_name(row) == "ROW" or isinstance(row, exp.Tuple):
            reporter.require_only(row, "this", "expressions")
            parts.arguments, parts.is_row = list(row.expressions), bool(row.expressions)
    _check_call(reporter, parts)
    return parts


def _add_argument(reporter: ProblemReporter, parts: _CallParts, argument: exp.Expr) -> None:
    """Add an argument, and the ORDER BY, DISTINCT or IGNORE NULLS that the parser puts on it."""
    if isinstance(argument, exp.Order):
        reporter.require_only(argument, "this", "expressions")
        parts.order = tuple(argument.expressions)
        _add_argument(reporter, parts, argument.this)
    elif isinstance(argument, exp.Distinct):
        reporter.require_only(argument, "expressions")
        parts.distinct = True
        for each in argument.expressions:
            _add_argument(reporter, parts, each)
    elif isinstance(argument, exp.IgnoreNulls | exp.RespectNulls):
        parts.keeps_nulls = isinstance(argument, exp.RespectNulls)
        _add_argument(reporter, parts, argument.this)
    else:
        parts.arguments.append(argument)


def _check_call(reporter: ProblemReporter, parts: _CallParts) -> None:
    """Refuse parts that the function does not have, and a wrong number of arguments."""
    function, name, node = parts.function, parts.name, parts.call
    if parts.order and function.order in (Order.NONE, Order.ARGUMENT):
        raise reporter.refusal(f"{name} has no ORDER BY", node, function.example)
    if function.order is Order.NEEDED and not parts.order:
        reason = BY_ARRIVAL.format(name)
        raise reporter.refusal(reason, node, f"{name}(x ORDER BY y)")
    if function.order is Order.VALUE and parts.order:
        if not parts.within_group:
            raise reporter.refusal(f"{name} has no ORDER BY inside", node, function.example)
        if len(parts.order) > 1:
            message = f"{name} has one ORDER BY expression"
            raise reporter.refusal(message, parts.order[1], function.example)
        parts.arguments.insert(0, parts.order[0].this)
    if parts.keeps_nulls and not (function.keeps_nulls or function.may_keep_nulls):
        message = f"{name} ignores NULLs; ARRAY_AGG, FIRST_VALUE and LAST_VALUE have RESPECT NULLS"
        raise reporter.refusal(message, node)
    many = function.name == "COUNT" and parts.distinct
    least = 1 + (function.order is Order.ARGUMENT or function.is_of_pairs)
    most = least + (function.constant is not None)
    if function.constant not in (None, Constant.SEPARATOR):
        least = most
    many = many or _OPERATOR_CLASS in node.meta
    if not (least <= len(parts.arguments) <= most or (many and parts.arguments)):
        written = most - (function.constant is Constant.ON_NULL)  # which the parser adds
        count = {1: "one argument", 2: "two arguments", 3: "three arguments"}[written]
        shape = function.example if most > 1 or function.order is Order.VALUE else f"{name}(x)"
        raise reporter.refusal(f"{name} has {count}", node, shape)


# --- expressions ---------------------------------------------------------------------------------


def _read_count(reporter: ProblemReporter, parts: _CallParts, read: Read) -> AggregateCall | None:
    """Return COUNT(*), or COUNT of a constant, which counts every row; None for another COUNT."""
    (node,) = parts.arguments
    argument: Expression = Literal(1, INT)
    if isinstance(node, exp.Star):
        reporter.require_only(node)
    else:
        argument = read(node, parts.name)
        if not isinstance(argument, Literal) or argument.value is None:
            return None
    result = parts.function.result(INT)
    if parts.condition is None:
        return AggregateCall("COUNT", None, result)
    return AggregateCall("COUNT", _apply_filter(reporter, parts, argument, read), result)


def _apply_filter(
    reporter: ProblemReporter, parts: _CallParts, argument: Expression, read: Read
) -> Expression:
    """Return FILTER (WHERE c) as CASE WHEN c THEN argument END."""
    if parts.condition is None:
        return argument
    condition = read(parts.condition, "FILTER")
    with reporter.blame(parts.condition):
        condition = typing_rules.require_condition(condition, "FILTER")
    return Case(((condition, argument),), None, argument.type)


def _make_argument(
    reporter: ProblemReporter,
    parts: _CallParts,
    values: list[Expression],
    by: list[Expression],
    order: list[Ordering],
) -> tuple[Expression, tuple[Ordering, ...]]:
    """Return the argument of the accumulators, and a direction for each of its parts."""
    function, value = parts.function, values[0]
    if function.order is Order.VALUE:
        if order and order[0].nulls_first is order[0].descending:
            message = "the values contain no NULL: remove NULLS FIRST or NULLS LAST"
            raise reporter.refusal(message, parts.order[0])
        return value, tuple(order)
    if len(values) > 1 or parts.is_row:  # COUNT(DISTINCT x, y); ARG_MAX(x, y) sorts by y, then x
        sorted_by = [*values[1:], value] if function.order is Order.ARGUMENT else values
        keeps = parts.is_row or function.keeps_nulls
        null_where: OneOf["any", "never"] = "never" if keeps else "any"
        kind = row_of(*(each.type for each in sorted_by))
        return Composite(tuple(sorted_by), kind, null_where), ()
    if value in by:  # sort keys after the value itself have no effect
        at = by.index(value)
        by, order = by[:at], order[: at + 1]
    elif by:
        # Rows with equal sort keys are sorted by their values, in the same direction.
        order = [*order, Ordering(order[-1].descending, not order[-1].descending)]
    if parts.distinct and by:
        message = "with DISTINCT only the values themselves can be in ORDER BY"
        raise reporter.refusal(message, parts.order[0], f"{parts.name}(DISTINCT x ORDER BY x)")
    for each, blamed in zip(by, parts.order, strict=False):
        with reporter.blame(blamed):
            typing_rules.require_type(each)
    keeps_nulls = function.keeps_nulls if parts.keeps_nulls is None else parts.keeps_nulls
    if not by and not keeps_nulls:
        return value, tuple(order)
    rows = (*by, value)
    kind = row_of(*(each.type for each in rows))
    return Composite(rows, kind, "never" if keeps_nulls else "last"), tuple(order)


def _read_direction(reporter: ProblemReporter, ordered: exp.Expr) -> Ordering:
    reporter.require_only(ordered, "this", "desc", "nulls_first")
    return Ordering(bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first")))


def _read_parameters(reporter: ProblemReporter, parts: _CallParts) -> tuple[str | int, ...]:
    """Remove the literals of a call from its arguments and return their values."""
    constant = parts.function.constant
    if constant is None:
        return ()
    index = 1 + (parts.function.order is Order.ARGUMENT)
    node = parts.arguments.pop(index) if len(parts.arguments) > index else None
    try:
        return (_CONSTANTS[constant](node),)
    except TypeProblem as problem:
        raise reporter.refusal(problem.message, node or parts.call, problem.hint) from None


def _read_separator(node: exp.Expr | None) -> str:
    if node is None:
        return ","
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise TypeProblem("the separator must be a string literal", "', '")
    return str(node.name)


def _read_k(node: exp.Expr | None) -> int:
    digits = node.name if isinstance(node, exp.Literal) and not node.is_string else ""
    if not re.fullmatch(r"\d{1,9}", digits) or not 1 <= int(digits) <= TOP_K_MAX:
        raise TypeProblem(f"k must be a literal from 1 to {TOP_K_MAX}", "10")
    return int(digits)


def _read_fraction(node: exp.Expr | None) -> str:
    digits = node.name if isinstance(node, exp.Literal) and not node.is_string else "."
    if not _FRACTION.fullmatch(digits) or digits == "." or not 0 <= Fraction(digits) <= 1:
        raise TypeProblem("p must be a literal from 0 to 1", "0.95")
    return str(Fraction(digits))


_CONSTANTS: dict[Constant, Callable[[exp.Expr | None], str | int]] = {
    Constant.SEPARATOR: _read_separator,
    Constant.COUNT: _read_k,
    Constant.FRACTION: _read_fraction,
    Constant.ON_NULL: lambda node: "" if node is None else str(node.name),
}
