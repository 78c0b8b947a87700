"""MEDIAN, PERCENTILE_CONT, PERCENTILE_DISC and MODE: values by their rank, and by how often.

How many values there are is a cell, so a rank is a number, and a multiset finds what is there from
the nearest place whose rank it knows. It is exact: a fraction is the decimal that the query says.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from jobs.core.aggregates.base import (
    Accumulator,
    Constant,
    Distinction,
    Function,
    Order,
    Reading,
    Site,
)
from jobs.core.aggregates.distinct import Present
from jobs.core.aggregates.multiset import Multiset, multiset_of, same_type
from jobs.core.aggregates.present_values import PresentValues
from jobs.core.plan.typing_rules import numeric
from jobs.core.values.change import Value
from jobs.core.values.exact_numbers import INFINITY, exact_float, rounded_double
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
    """The first value up to which there are over/under of all values."""
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
    """The value at over/under of the way, between two values in proportion; of integers of
    1/unit, or of floats."""
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
        return _quotient(low * (under - part) + high * part, unit * under)
    if low == high or not part:
        return float(low)
    if not (-INFINITY < low < INFINITY and -INFINITY < high < INFINITY):
        return float(low * ((under - part) / under) + high * (part / under))
    return rounded_double(exact_float(low) * (under - part) + exact_float(high) * part, under)


def _quotient(over: int, under: int) -> float:
    return over / under


def _ascending(rank: int, count: int, descending: bool) -> int:
    """A rank as it is from the least value on."""
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
    numeric(argument, name)
    return DOUBLE


FUNCTIONS = (
    Function(
        "MEDIAN",
        needs=_needs,
        result=lambda argument: _numbers("MEDIAN", argument),
        value=lambda site: _continuous(site, "1, 2"),
        about="The value in the middle, or half way between the two there: PERCENTILE_CONT(0.5).",
        example="MEDIAN(cnt)",
        gives=4.0,
        reading=Reading.RANK,
    ),
    Function(
        "PERCENTILE_CONT",
        needs=_needs,
        result=lambda argument: _numbers("PERCENTILE_CONT", argument),
        value=lambda site: _continuous(site, _fraction(site)),
        about="The value at the part p of the way from the least to the greatest, in proportion "
        "between two values. `PERCENTILE(x, p)` says the same.",
        example="PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY cnt)",
        gives=3.0,
        synonyms=("PERCENTILE",),
        reading=Reading.RANK,
        order=Order.VALUE,
        constant=Constant.FRACTION,
    ),
    Function(
        "PERCENTILE_DISC",
        needs=_needs,
        result=same_type,
        value=_discrete,
        about="The first value, in order, up to which there is the part p of all values.",
        example="PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY name)",
        gives="bee",
        reading=Reading.RANK,
        order=Order.VALUE,
        constant=Constant.FRACTION,
    ),
    Function(
        "MODE",
        needs=multiset_of,
        result=same_type,
        value=lambda site: [f"{site.target} = {site.present}.most_frequent()"],
        about="The most frequent value; of several the least.",
        example="MODE(name)",
        gives="ant",
        reading=Reading.COMMONEST,
        order=Order.VALUE,
        distinction=Distinction.REFUSED,
    ),
)
