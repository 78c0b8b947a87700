"""Print aggregate calls as SQL, for people and for the parser."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

from jobs.core.aggregates import FUNCTIONS, Constant, Order, is_class, place_of
from jobs.core.plan.tree import Aggregate, Case, Composite, Expression, Ordering


def call_text(
    aggregate: Aggregate,
    argument: Expression | None,
    sql: Callable[[Expression], str],
    *,
    name: str | None = None,
    suffix: str = "",
) -> str:
    """Return an aggregate as a call.

    `sql` prints row expressions; `name` replaces the text of a plain argument. The suffix follows
    the name of the function."""
    if argument is None:
        return f"{aggregate.function}{suffix}(*)"
    row, condition = _split_filter(argument)
    if row is None:
        value = sql(argument) if name is None else name
        return _call_text(aggregate, suffix, value, [value], keeps_nulls=False)
    parts = [sql(part) for part in row.parts]
    keeps_nulls = row.null_where == "never"
    value = parts[place_of(aggregate)]
    text = _call_text(aggregate, suffix, value, parts, keeps_nulls=keeps_nulls)
    return text if condition is None else f"{text} FILTER (WHERE {sql(condition)})"


def _split_filter(expression: Expression) -> tuple[Composite | None, Expression | None]:
    """Return the ROW of an argument and its FILTER condition; each may be None.

    The text of a CASE cannot contain a ROW, so the condition is printed as a FILTER."""
    if isinstance(expression, Composite):
        return expression, None
    if isinstance(expression, Case):
        (condition, value), *others = expression.branches
        if isinstance(value, Composite) and not others:
            return value, condition
    return None, None


def _call_text(
    aggregate: Aggregate, suffix: str, value: str, parts: list[str], *, keeps_nulls: bool
) -> str:
    function = FUNCTIONS[aggregate.function]
    name = aggregate.function + suffix
    distinct = "DISTINCT " if aggregate.distinct else ""
    written = aggregate.parameters if function.constant else ()
    constants = [_constant_text(function.constant, each) for each in written]
    if function.constant is Constant.ON_NULL:
        on_null = f"{aggregate.parameters[0]} ON NULL"
        if function.order is Order.ARGUMENT:
            return f"{name}(KEY {parts[0]} VALUE {value} {on_null})"
        order = f" ORDER BY {_order_text(parts, aggregate.order)}" if aggregate.order else ""
        return f"{name}({value}{order} {on_null})"
    if function.order is Order.ARGUMENT:
        return f"{name}({', '.join([value, parts[0], *constants])})"
    if function.order is Order.VALUE:
        if not aggregate.order:
            return f"{name}({', '.join([distinct + value, *constants])})"
        order = _order_text([value], aggregate.order)
        return f"{name}({', '.join(constants)}) WITHIN GROUP (ORDER BY {order})"
    if is_class(aggregate):
        return f"{name}({distinct}{', '.join(parts)})"
    if aggregate.function == "COUNT" or function.is_of_pairs:
        listed = ", ".join(parts)
        return f"{name}({distinct}{f'ROW({listed})' if keeps_nulls else listed})"
    shown = ", ".join([distinct + value, *constants])
    if function.keeps_nulls and not keeps_nulls:
        shown += " IGNORE NULLS"
    if keeps_nulls and not function.keeps_nulls:
        shown += " RESPECT NULLS"
    whole = place_of(aggregate) >= 0
    order = f" ORDER BY {_order_text(parts, aggregate.order, whole)}" if aggregate.order else ""
    return f"{name}({shown}{order})"


def _order_text(parts: list[str], order: tuple[Ordering, ...], whole: bool = False) -> str:
    texts = []
    for index, (part, each) in enumerate(zip(parts, order, strict=True)):
        last = index and index == len(parts) - 1 and not whole
        if last and each == _tie_break(order[index - 1]):
            break  # the values themselves, which are the default tie-break
        direction = " DESC" if each.descending else ""
        if each.nulls_first is each.descending:
            direction += " NULLS FIRST" if each.nulls_first else " NULLS LAST"
        texts.append(part + direction)
    return ", ".join(texts)


def _tie_break(before: Ordering) -> Ordering:
    return Ordering(before.descending, not before.descending)


def _constant_text(kind: Constant | None, value: str | int) -> str:
    if kind is Constant.SEPARATOR:
        return "'" + str(value).replace("'", "''") + "'"
    if kind is Constant.FRACTION:
        fraction = Fraction(value)
        return format(Decimal(fraction.numerator) / fraction.denominator, "f")
    return str(value)
