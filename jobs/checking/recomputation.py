"""Recompute an aggregate from all of its values, straight from its definition.

    values with multiplicities ──► all of them in a sorted list ──► the definition

It shares only the arithmetic of floats with the fold (exact integers, rounded once): no cells, no
merging, no search by rank. The audit uses it, and must not repeat the mistakes that it looks for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from functools import cmp_to_key
from typing import Any

from jobs.core.fold.state import rank
from jobs.core.plan.tree import Aggregate
from jobs.core.values.exact_numbers import float_result, float_to_units
from schemas.limits import LIST_CHARACTERS_MAX, LIST_VALUES_MAX
from schemas.types.sql_types import DECIMAL_PRECISION_MAX, Kind, SqlType, integer_range

Values = Sequence[tuple[Any, int]]
_DIGITS = Context(prec=800, Emax=999_999, Emin=-999_999)  # far more than a root of doubles needs


def recompute(aggregate: Aggregate, argument: SqlType, values: Values) -> Any:
    """Return the value of an aggregate over values with their multiplicities."""
    return RECOMPUTATIONS[aggregate.function](aggregate, argument, _list_values(aggregate, values))


def recompute_total(aggregate: Aggregate, argument: SqlType, total: int, count: int) -> int | None:
    """Return SUM or AVG of integers or decimals, from their total and count."""
    if count == 0:
        return None
    result = aggregate.type
    exact = Fraction(total, count if aggregate.function == "AVG" else 1)
    if argument.integer:
        rounded = int(exact)  # towards zero
        low, high = integer_range(result)
    else:
        exact *= 10 ** ((result.scale or 0) - (argument.scale or 0))
        rounded = math.floor(abs(exact) + Fraction(1, 2)) * (-1 if exact < 0 else 1)
        high = 10 ** (result.precision or DECIMAL_PRECISION_MAX) - 1
        low = -high
    return rounded if low <= rounded <= high else None


def _list_values(aggregate: Aggregate, values: Values) -> list[Any]:
    """Return every value as often as it occurs, once with DISTINCT; smallest first."""
    present = [(value, 1 if aggregate.distinct else times) for value, times in values if times > 0]
    return sorted((value for value, times in present for _ in range(times)), key=rank)


def _recompute_sum(
    aggregate: Aggregate, argument: SqlType, values: list[Any]
) -> int | float | None:
    if not argument.floating:
        return recompute_total(aggregate, argument, sum(values), len(values))
    if not values:
        return None
    count = len(values) if aggregate.function == "AVG" else 1
    return float_result(
        sum(float_to_units(value) for value in values if math.isfinite(value)),
        sum(value != value for value in values),
        values.count(math.inf),
        values.count(-math.inf),
        count,
        single=argument.kind is Kind.FLOAT,
    )


def _recompute_variance(aggregate: Aggregate, argument: SqlType, values: list[Any]) -> float | None:
    root, sample = aggregate.function.split("_")
    count = len(values) - (sample == "SAMP")
    if count <= 0:
        return None
    if argument.floating and not all(map(math.isfinite, values)):
        return math.nan
    unit = 1 if argument.floating else 10 ** (argument.scale or 0)
    exact = [Fraction(value) / unit for value in values]
    mean = sum(exact, Fraction(0)) / len(exact)
    variance = sum(((value - mean) ** 2 for value in exact), Fraction(0)) / count
    if root == "STDDEV":
        ratio = _DIGITS.divide(Decimal(variance.numerator), Decimal(variance.denominator))
        return float(_DIGITS.sqrt(ratio))
    try:
        return float(variance)
    except OverflowError:
        return math.inf


def _order(aggregate: Aggregate, argument: SqlType, values: list[Any]) -> list[Any]:
    """Return the values in the order of ORDER BY, without the columns that only order them."""
    rows = [value if argument.kind is Kind.ROW else (value,) for value in values]
    order = [(each.descending, each.nulls_first) for each in aggregate.order]

    def compare(left: tuple[Any, ...], right: tuple[Any, ...]) -> int:
        for (descending, nulls_first), a, b in zip(order, left, right, strict=True):
            if rank(a) == rank(b):
                continue
            if a is None or b is None:
                return -1 if (a is None) is nulls_first else 1
            return -1 if (rank(a) < rank(b)) is not descending else 1
        return 0

    if order:
        rows.sort(key=cmp_to_key(compare))
    return [row[-1] for row in rows]


def _make_edge(*, last: bool) -> Callable[[Aggregate, SqlType, list[Any]], Any]:
    def edge(aggregate: Aggregate, argument: SqlType, values: list[Any]) -> Any:
        found = _order(aggregate, argument, values)
        return found[-1 if last else 0] if found else None

    return edge


def _join(aggregate: Aggregate, argument: SqlType, values: list[Any]) -> str | None:
    texts = _order(aggregate, argument, values)
    joined = str(aggregate.parameters[0]).join(texts)
    fits = len(texts) <= LIST_VALUES_MAX and len(joined) <= LIST_CHARACTERS_MAX
    return joined if texts and fits else None


def _collect(aggregate: Aggregate, argument: SqlType, values: list[Any]) -> Any:
    return _fit(_order(aggregate, argument, values))


def _take_top(aggregate: Aggregate, argument: SqlType, values: list[Any]) -> Any:
    return _fit(values[::-1][: int(aggregate.parameters[0])])


def _fit(values: list[Any]) -> tuple[Any, ...] | None:
    characters = sum(len(value) for value in values if isinstance(value, str | bytes))
    fits = len(values) <= LIST_VALUES_MAX and characters <= LIST_CHARACTERS_MAX
    return tuple(values) if values and fits else None


def _interpolate(aggregate: Aggregate, argument: SqlType, values: list[Any]) -> float | None:
    if not values:
        return None
    part = Fraction(str(aggregate.parameters[0])) if aggregate.parameters else Fraction(1, 2)
    values = _order(aggregate, argument, values)
    at = part * (len(values) - 1)
    low, high = values[math.floor(at)], values[math.ceil(at)]
    between = at - math.floor(at)
    if rank(low) == rank(high):
        high = low
    if argument.floating and not (math.isfinite(low) and math.isfinite(high)):
        return float(low if low is high else low * float(1 - between) + high * float(between))
    unit = 1 if argument.floating else 10 ** (argument.scale or 0)
    return float((Fraction(low) * (1 - between) + Fraction(high) * between) / unit)


def _pick_percentile(aggregate: Aggregate, argument: SqlType, values: list[Any]) -> Any:
    values = _order(aggregate, argument, values)
    wanted = Fraction(str(aggregate.parameters[0])) * len(values)
    return next((v for number, v in enumerate(values, 1) if number >= wanted), None)


def _find_mode(aggregate: Aggregate, argument: SqlType, values: list[Any]) -> Any:
    times = Counter(map(rank, values))
    # Of several such values, max returns the first, which is the smallest.
    return max(values, key=lambda value: times[rank(value)], default=None)


RECOMPUTATIONS: dict[str, Callable[[Aggregate, SqlType, list[Any]], Any]] = {
    "COUNT": lambda _, __, values: len(values),
    "SUM": _recompute_sum,
    "AVG": _recompute_sum,
    "MIN": lambda _, __, values: values[0] if values else None,
    "MAX": lambda _, __, values: values[-1] if values else None,
    "ANY_VALUE": lambda _, __, values: values[0] if values else None,
    "BOOL_AND": lambda _, __, values: all(values) if values else None,
    "BOOL_OR": lambda _, __, values: any(values) if values else None,
    "VAR_POP": _recompute_variance,
    "VAR_SAMP": _recompute_variance,
    "STDDEV_POP": _recompute_variance,
    "STDDEV_SAMP": _recompute_variance,
    "FIRST_VALUE": _make_edge(last=False),
    "LAST_VALUE": _make_edge(last=True),
    "ARG_MIN": _make_edge(last=False),
    "ARG_MAX": _make_edge(last=True),
    "STRING_AGG": _join,
    "ARRAY_AGG": _collect,
    "TOP_K": _take_top,
    "MEDIAN": _interpolate,
    "PERCENTILE_CONT": _interpolate,
    "PERCENTILE_DISC": _pick_percentile,
    "MODE": _find_mode,
}
