"""MEDIAN, PERCENTILE_CONT, PERCENTILE_DISC and MODE: values by rank or by frequency.

A cell counts the values, so a percentile has a definite rank. The multiset searches the value from
the nearest position whose rank it knows. Results are exact: p is the decimal in the query.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from jobs.core.aggregates.distinct import Present
from jobs.core.aggregates.extremes import Multiset, multiset_of, same_type
from jobs.core.aggregates.interfaces import (
    Accumulator,
    Constant,
    Distinction,
    Function,
    Order,
    ReadCost,
    Site,
)
from jobs.core.aggregates.present_values import PresentValues
from jobs.core.plan.typing_rules import require_numeric
from jobs.core.values.change import Value
from jobs.core.values.exact_numbers import INFINITY, float_to_units, round_to_double
from schemas.types.sql_types import DOUBLE, SqlType


def percentile_disc(
    present: PresentValues[Any],
    count: int,
    over: int,
    under: int,
    *,
    descending: bool,
    distinct: bool,
) -> Value:
    """Return the first value up to which there are over/under of all values."""
    if count <= 0:
        return None
    rank = max(-(-over * count // under), 1)
    return present.at(_ascending(rank, count, descending), count, distinct=distinct)[0]


def percentile_cont(
    present: PresentValues[Any],
    count: int,
    over: int,
    under: int,
    unit: int | None,
    *,
    descending: bool,
    distinct: bool,
) -> float | None:
    """Return the value at the fraction over/under, interpolated between two values.

    The values are integers of 1/unit, or floats if `unit` is None."""
    if count <= 0:
        return None
    before, part = divmod(over * (count - 1), under)
    low: Any
    high: Any
    if descending and part:
        high, low = present.at(count - before - 1, count, distinct=distinct)
    else:
        rank = _ascending(before + 1, count, descending)
        low, high = present.at(rank, count, distinct=distinct)
    if low is None:
        return None
    if unit is not None:
        return _divide(low * (under - part) + high * part, unit * under)
    if low == high or not part:
        return float(low)
    if not (-INFINITY < low < INFINITY and -INFINITY < high < INFINITY):
        return float(low * ((under - part) / under) + high * (part / under))
    return round_to_double(
        float_to_units(low) * (under - part) + float_to_units(high) * part, under
    )


def _divide(over: int, under: int) -> float:
    return over / under


def _ascending(rank: int, count: int, descending: bool) -> int:
    """Return the rank counted from the smallest value."""
    return count - rank + 1 if descending else rank


RUNTIME = (percentile_disc, percentile_cont)


def _needs(name: str, kind: SqlType) -> tuple[Accumulator, ...]:
    return (Multiset(name), Present(name))


def _options(site: Site) -> str:
    descending = bool(site.aggregate.order) and site.aggregate.order[0].descending
    return f"descending={descending}, distinct={site.aggregate.distinct}"


def _fraction(site: Site) -> str:
    fraction = Fraction(str(site.aggregate.parameters[0]))
    return f"{fraction.numerator}, {fraction.denominator}"


def _continuous(site: Site, fraction: str) -> list[str]:
    unit = None if site.argument.floating else 10 ** (site.argument.scale or 0)
    given = f"{site.present}, {site.cells[0]}, {fraction}, {unit}"
    return [f"{site.target} = percentile_cont({given}, {_options(site)})"]


def _discrete(site: Site) -> list[str]:
    given = f"{site.present}, {site.cells[0]}, {_fraction(site)}"
    return [f"{site.target} = percentile_disc({given}, {_options(site)})"]


def _numbers(name: str, argument: SqlType) -> SqlType:
    require_numeric(argument, name)
    return DOUBLE


FUNCTIONS = (
    Function(
        "MEDIAN",
        accumulators=_needs,
        result=lambda argument: _numbers("MEDIAN", argument),
        value=lambda site: _continuous(site, "1, 2"),
        about="The middle value, or the mean of the two middle ones: PERCENTILE_CONT(0.5).",
        example="MEDIAN(cnt)",
        example_result=4.0,
        read_cost=ReadCost.RANK,
    ),
    Function(
        "PERCENTILE_CONT",
        accumulators=_needs,
        result=lambda argument: _numbers("PERCENTILE_CONT", argument),
        value=lambda site: _continuous(site, _fraction(site)),
        about="The value at the fraction p from the smallest to the greatest, interpolated "
        "between two values. `PERCENTILE(x, p)` is the same.",
        example="PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY cnt)",
        example_result=3.0,
        synonyms=("PERCENTILE", "QUANTILE_CONT"),
        read_cost=ReadCost.RANK,
        order=Order.VALUE,
        constant=Constant.FRACTION,
    ),
    Function(
        "PERCENTILE_DISC",
        accumulators=_needs,
        result=same_type,
        value=_discrete,
        about="The first value, in order, up to which there is the fraction p of all values.",
        example="PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY name)",
        example_result="bee",
        synonyms=("QUANTILE_DISC", "QUANTILE"),
        read_cost=ReadCost.RANK,
        order=Order.VALUE,
        constant=Constant.FRACTION,
    ),
    Function(
        "MODE",
        accumulators=multiset_of,
        result=same_type,
        value=lambda site: [f"{site.target} = {site.present}.most_frequent()"],
        about="The most frequent value; of several the smallest, also with ORDER BY x DESC.",
        example="MODE(name)",
        example_result="ant",
        read_cost=ReadCost.COMMONEST,
        order=Order.VALUE,
        distinction=Distinction.REFUSED,
    ),
)
