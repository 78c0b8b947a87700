"""Recompute an aggregate from all of its values, straight from its definition.

    values with multiplicities ──► all of them in a sorted list ──► the definition

It shares only the arithmetic of floats with the fold (exact integers, rounded once): no cells, no
merging, no search by rank. The audit uses it, and must not repeat the mistakes that it looks for.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from functools import cmp_to_key, reduce
from operator import and_, or_, xor
from typing import Any

from jobs.core.fold.state import rank
from jobs.core.plan.tree import Aggregate
from jobs.core.values.exact_numbers import float_result, float_to_units
from jobs.core.values.json_values import render
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
    present = sort_present(values)
    return [value for value, n in present for _ in range(1 if aggregate.distinct else n)]


def sort_present(values: Values) -> list[tuple[Any, int]]:
    """Return the values that are present with their multiplicities; smallest first."""
    return sorted((each for each in values if each[1] > 0), key=lambda each: rank(each[0]))


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
    variance = _moment(2, _exact(argument, values)) / count
    return _signed_root(variance, variance) if root == "STDDEV" else _to_double(variance)


def _exact(argument: SqlType, values: list[Any]) -> list[Fraction]:
    unit = 1 if argument.floating else 10 ** (argument.scale or 0)
    return [Fraction(value) / unit for value in values]


def _moment(order: int, values: list[Fraction], others: list[Fraction] | None = None) -> Fraction:
    """Return the sum of (x - mean) ** order, or of the products of both deviations."""
    mean = sum(values, Fraction(0)) / len(values)
    if others is None:
        return sum(((value - mean) ** order for value in values), Fraction(0))
    middle = sum(others, Fraction(0)) / len(others)
    pairs = zip(values, others, strict=True)
    return sum(((value - mean) * (other - middle) for value, other in pairs), Fraction(0))


def _to_double(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _signed_root(sign: Fraction, square: Fraction) -> float:
    ratio = _DIGITS.divide(Decimal(square.numerator), Decimal(square.denominator))
    root = float(_DIGITS.sqrt(ratio))
    return -root if sign < 0 else root


def _recompute_shape(aggregate: Aggregate, argument: SqlType, values: list[Any]) -> float | None:
    count, is_sample = len(values), aggregate.function != "KURTOSIS_POP"
    least = {"SKEWNESS": 3, "KURTOSIS": 4, "KURTOSIS_POP": 1}[aggregate.function]
    if count < least:
        return None
    if argument.floating and not all(map(math.isfinite, values)):
        return math.nan
    exact = _exact(argument, values)
    second = _moment(2, exact) / count
    if second == 0:
        return None
    if aggregate.function == "SKEWNESS":
        third = _moment(3, exact) / count
        return _signed_root(
            third, third**2 / second**3 * count * (count - 1) / Fraction(count - 2) ** 2
        )
    excess = _moment(4, exact) / count / second**2 - 3
    if is_sample:
        excess = ((count + 1) * excess + 6) * (count - 1) / ((count - 2) * Fraction(count - 3))
    return _to_double(excess)


def _recompute_pairs(aggregate: Aggregate, argument: SqlType, values: list[Any]) -> float | None:
    if not values:
        return None
    if not all(math.isfinite(part) for pair in values for part in pair):
        return math.nan
    y, x = (
        _exact(kind, list(parts))
        for kind, parts in zip(argument.items, zip(*values, strict=True), strict=True)
    )
    count, sxx, syy, sxy = len(values), _moment(2, x), _moment(2, y), _moment(0, y, x)
    mean_y, mean_x = sum(y, Fraction(0)) / count, sum(x, Fraction(0)) / count
    match aggregate.function.removeprefix("REGR_"):
        case "CORR":
            return _signed_root(sxy, sxy**2 / (sxx * syy)) if sxx and syy else None
        case "COVAR_SAMP":
            return _to_double(sxy / (count - 1)) if count > 1 else None
        case "SLOPE" | "INTERCEPT" | "R2" if not sxx:
            return None
        case "SLOPE":
            return _to_double(sxy / sxx)
        case "INTERCEPT":
            return _to_double(mean_y - sxy / sxx * mean_x)
        case "R2":
            return _to_double(sxy**2 / (sxx * syy)) if syy else 1.0
        case other:
            parts = {"COVAR_POP": sxy / count, "AVGX": mean_x, "AVGY": mean_y}
            return _to_double({**parts, "SXX": sxx, "SYY": syy, "SXY": sxy}[other])


def _recompute_bits(aggregate: Aggregate, argument: SqlType, values: list[Any]) -> int | None:
    combine = {"BIT_AND": and_, "BIT_OR": or_, "BIT_XOR": xor}[aggregate.function]
    return reduce(combine, values) if values else None


def _order(aggregate: Aggregate, argument: SqlType, values: list[Any]) -> list[Any]:
    """Return the values in the order of ORDER BY, without the columns that only order them."""
    is_end = aggregate.function in ("FIRST_VALUE", "LAST_VALUE")
    place = int(aggregate.parameters[0]) if is_end and aggregate.parameters else -1
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
    return [row[place] for row in rows]


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


def _json_text(value: Any, kind: SqlType) -> str:
    shown = render(value, kind)
    is_decimal = kind.kind is Kind.DECIMAL and value is not None
    return str(shown) if is_decimal else json.dumps(shown, ensure_ascii=False)


def _write_json(aggregate: Aggregate, argument: SqlType, values: list[Any]) -> str | None:
    kind = argument.items[-1] if argument.kind is Kind.ROW else argument
    with_nulls, is_array = aggregate.parameters == ("NULL",), aggregate.function == "JSON_ARRAYAGG"
    if is_array:
        ordered = _order(aggregate, argument, values)
        texts = [_json_text(value, kind) for value in ordered if with_nulls or value is not None]
    else:
        last = {
            rank(key): (_json_text(key, argument.items[0]), key, value) for key, value in values
        }
        texts = [
            _as_name(name) + ":" + _json_text(value, kind)
            for name, key, value in last.values()
            if key is not None and (with_nulls or value is not None)
        ]
    return _enclose("[]" if is_array else "{}", texts) if values else None


def _as_name(text: str) -> str:
    return text if text.startswith('"') else f'"{text}"'


def _enclose(brackets: str, texts: list[str]) -> str | None:
    joined = ",".join(texts)
    fits = len(texts) <= LIST_VALUES_MAX and len(joined) <= LIST_CHARACTERS_MAX
    return brackets[0] + joined + brackets[1] if fits else None


def _collect(aggregate: Aggregate, argument: SqlType, values: list[Any]) -> Any:
    return _fit(_order(aggregate, argument, values))


def _take_edge(*, last: bool) -> Callable[[Aggregate, SqlType, list[Any]], Any]:
    def edge(aggregate: Aggregate, argument: SqlType, values: list[Any]) -> Any:
        some = (values[::-1] if last else values)[: int(aggregate.parameters[0])]
        return _fit([row[-1] for row in some])

    return edge


def _count_values(aggregate: Aggregate, argument: SqlType, values: list[Any]) -> str | None:
    counts = Counter(_as_name(_json_text(value, argument)) for value in values)
    texts = [f"{name}:{count}" for name, count in counts.items()]
    return _enclose("{}", texts) if texts else None


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
    **dict.fromkeys(("SKEWNESS", "KURTOSIS", "KURTOSIS_POP"), _recompute_shape),
    **dict.fromkeys(("COVAR_POP", "COVAR_SAMP", "CORR"), _recompute_pairs),
    "REGR_COUNT": lambda _, __, values: len(values),
    **{
        f"REGR_{name}": _recompute_pairs
        for name in ("SLOPE", "INTERCEPT", "R2", "AVGX", "AVGY", "SXX", "SYY", "SXY")
    },
    **dict.fromkeys(("BIT_AND", "BIT_OR", "BIT_XOR"), _recompute_bits),
    "FIRST_VALUE": _make_edge(last=False),
    "LAST_VALUE": _make_edge(last=True),
    "ARG_MIN": _make_edge(last=False),
    "ARG_MAX": _make_edge(last=True),
    "ARG_MIN_N": _take_edge(last=False),
    "ARG_MAX_N": _take_edge(last=True),
    "STRING_AGG": _join,
    "ARRAY_AGG": _collect,
    "JSON_ARRAYAGG": _write_json,
    "JSON_OBJECTAGG": _write_json,
    "HISTOGRAM": _count_values,
    "TOP_K": _take_top,
    "MEDIAN": _interpolate,
    "PERCENTILE_CONT": _interpolate,
    "PERCENTILE_DISC": _pick_percentile,
    "MODE": _find_mode,
}
