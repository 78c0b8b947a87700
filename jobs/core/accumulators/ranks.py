"""MEDIAN, PERCENTILE_CONT, PERCENTILE_DISC and MODE: values by their rank, and by how often.

How many values there are is a cell, so only the entries up to a rank are gone through, from the
end that is nearer. The rank is exact: a fraction is taken as the decimal that the query says.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from jobs.core.accumulators.base import (
    Accumulator,
    Constant,
    Distinction,
    Function,
    Order,
    Reading,
    Site,
)
from jobs.core.accumulators.distinct import Present
from jobs.core.accumulators.entries import Entries, Walk, once
from jobs.core.accumulators.multiset import Multiset, multiset_of, same_type
from jobs.core.accumulators.numbers import INFINITY, exact_float, rounded_double
from jobs.core.change import Value
from jobs.core.typing_rules import numeric
from schemas.types import DOUBLE, SqlType


def percentile_disc(
    walk: Walk, present: int, over: int, under: int, *, descending: bool, distinct: bool
) -> Value:
    """The first value up to which there are over/under of all values."""
    if present <= 0:
        return None
    rank = max(-(-over * present // under), 1)
    return next(_from_rank(walk, present, rank, descending=descending, distinct=distinct), None)


def percentile_cont(
    walk: Walk,
    present: int,
    over: int,
    under: int,
    unit: int | None,
    *,
    descending: bool,
    distinct: bool,
) -> float | None:
    """The value at over/under of the way, between two values in proportion; of integers of
    1/unit, or of floats."""
    if present <= 0:
        return None
    before, part = divmod(over * (present - 1), under)
    values = _from_rank(walk, present, before + 1, descending=descending, distinct=distinct)
    low = next(values, None)
    if low is None:
        return None
    high = next(values, low) if part else low
    if unit is not None:
        return _quotient(low * (under - part) + high * part, unit * under)
    if low == high or not part:
        return float(low)
    if not (-INFINITY < low < INFINITY and -INFINITY < high < INFINITY):
        return float(low * ((under - part) / under) + high * (part / under))
    return rounded_double(exact_float(low) * (under - part) + exact_float(high) * part, under)


def _quotient(over: int, under: int) -> float:
    return over / under


def _from_rank(
    walk: Walk, present: int, rank: int, *, descending: bool, distinct: bool
) -> Iterator[Any]:
    """The values from a rank on (1 is the first), each as often as it is there. Where the rank is
    behind the middle it is looked for from the other end, and only two values come."""
    if 2 * rank <= present:
        for value, times in _entries(walk, descending, distinct):
            while times >= rank:
                yield value
                times -= 1
            rank -= times
        return
    rank = present - rank + 1  # from the other end
    after = None
    for value, times in _entries(walk, not descending, distinct):
        if times >= rank:
            yield value
            if rank > 1:
                yield value
            elif after is not None:
                yield after
            return
        rank -= times
        after = value


def _entries(walk: Walk, descending: bool, distinct: bool) -> Entries:
    return once(walk(descending)) if distinct else walk(descending)


def most_frequent(entries: Entries) -> Value:
    """The value with the greatest multiplicity; the least of several."""
    found: Value = None
    most = 0
    for value, times in entries:
        if times > most:
            found, most = value, times
    return found


RUNTIME = (percentile_disc, percentile_cont, most_frequent)


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
    given = f"{site.walk}, {site.cells[0]}, {fraction}, {unit}"
    return [f"{site.target} = percentile_cont({given}, {_options(site)})"]


def _discrete(site: Site) -> list[str]:
    given = f"{site.walk}, {site.cells[0]}, {_fraction(site)}"
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
        value=lambda site: [f"{site.target} = most_frequent({site.walk}(False))"],
        about="The most frequent value; of several the least.",
        example="MODE(name)",
        gives="ant",
        reading=Reading.ALL,
        order=Order.VALUE,
        distinction=Distinction.REFUSED,
    ),
)
