"""Aggregate text: a call as SQL, for people and for reading again."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

from jobs.core.aggregates import FUNCTIONS, Constant, Order
from jobs.core.plan.tree import Aggregate, Case, Composite, Expression, Ordering


def call_text(
    aggregate: Aggregate,
    argument: Expression | None,
    sql: Callable[[Expression], str],
    *,
    name: str | None = None,
    suffix: str = "",
) -> str:
    """An aggregate over its argument as a call. `sql` writes row expressions; a plain argument
    may be shown by a name instead. The suffix goes behind the function's own name."""
    if argument is None:
        return f"{aggregate.function}{suffix}(*)"
    row, condition = _row(argument)
    if row is None:
        value = sql(argument) if name is None else name
        return _call(aggregate, suffix, value, [value], keeps_nulls=False)
    parts = [sql(part) for part in row.parts]
    keeps_nulls = row.null_where == "never"
    text = _call(aggregate, suffix, parts[-1], parts, keeps_nulls=keeps_nulls)
    return text if condition is None else f"{text} FILTER (WHERE {sql(condition)})"


def _row(expression: Expression) -> tuple[Composite | None, Expression | None]:
    """The ROW that an argument is, and its FILTER: no row fits into a CASE as text."""
    if isinstance(expression, Composite):
        return expression, None
    if isinstance(expression, Case):
        (condition, value), *others = expression.branches
        if isinstance(value, Composite) and not others:
            return value, condition
    return None, None


def _call(
    aggregate: Aggregate, suffix: str, value: str, parts: list[str], *, keeps_nulls: bool
) -> str:
    function = FUNCTIONS[aggregate.function]
    name = aggregate.function + suffix
    distinct = "DISTINCT " if aggregate.distinct else ""
    constants = [_constant(function.constant, each) for each in aggregate.parameters]
    if function.order is Order.ARGUMENT:
        return f"{name}({value}, {parts[0]})"
    if function.order is Order.VALUE:
        if not aggregate.order:
            return f"{name}({', '.join([distinct + value, *constants])})"
        order = _ordered([value], aggregate.order)
        return f"{name}({', '.join(constants)}) WITHIN GROUP (ORDER BY {order})"
    if aggregate.function == "COUNT":
        return f"{name}({distinct}{', '.join(parts)})"
    shown = ", ".join([distinct + value, *constants])
    if function.keeps_nulls and not keeps_nulls:
        shown += " IGNORE NULLS"
    order = f" ORDER BY {_ordered(parts, aggregate.order)}" if aggregate.order else ""
    return f"{name}({shown}{order})"


def _ordered(parts: list[str], order: tuple[Ordering, ...]) -> str:
    texts = []
    for place, (part, each) in enumerate(zip(parts, order, strict=True)):
        if place and place == len(parts) - 1 and each == _like(order[place - 1]):
            break  # the values themselves, as they come without being asked
        direction = " DESC" if each.descending else ""
        if each.nulls_first is each.descending:
            direction += " NULLS FIRST" if each.nulls_first else " NULLS LAST"
        texts.append(part + direction)
    return ", ".join(texts)


def _like(before: Ordering) -> Ordering:
    return Ordering(before.descending, not before.descending)


def _constant(kind: Constant | None, value: str | int) -> str:
    if kind is Constant.SEPARATOR:
        return "'" + str(value).replace("'", "''") + "'"
    if kind is Constant.FRACTION:
        fraction = Fraction(value)
        return format(Decimal(fraction.numerator) / fraction.denominator, "f")
    return str(value)
