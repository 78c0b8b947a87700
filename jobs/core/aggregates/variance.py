"""VAR_POP, VAR_SAMP, STDDEV_POP, STDDEV_SAMP: from exact sums of values and squares.

    sum, sum of squares, count ──► an exact fraction ──► (its root) ──► rounded once, to a DOUBLE

So large values that are close together lose no digits, and a retraction undoes its row exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobs.core.aggregates.cell_json import power_json
from jobs.core.aggregates.count import Count
from jobs.core.aggregates.interfaces import Accumulator, Cell, Function, Site, Storage
from jobs.core.aggregates.sum import sum_of
from jobs.core.plan.typing_rules import require_numeric
from jobs.core.values.exact_numbers import FLOAT_UNITS, INFINITY, NAN, round_ratio
from jobs.core.values.json_values import Json
from schemas.types.sql_types import DOUBLE, INTEGER_BITS, SqlType

INTEGER_BITS_MAX = 32  # squares of so many bits leave a DECIMAL(38) room for 10^19 of them
_POWERS = {2: "squares", 3: "cubes", 4: "fourths"}
ROOT_BITS = 56  # more than a double has, so the remainder matters only if it is not 0


@dataclass(frozen=True, slots=True)
class Powers(Accumulator):
    """The sums of some powers of the finite numbers."""

    type: SqlType
    exponents: tuple[int, ...] = (2,)

    @property
    def cells(self) -> tuple[Cell, ...]:
        small = INTEGER_BITS.get(self.type.kind, INTEGER_BITS_MAX + 1) <= INTEGER_BITS_MAX
        storage = Storage.DECIMAL if small and self.exponents == (2,) else Storage.TEXT
        return tuple(
            Cell(f"acc_{_POWERS[each]}_{self.argument}", storage) for each in self.exponents
        )

    def add(self, cells: Sequence[str], value: str, weight: str) -> list[str]:
        number = f"float_to_units({value})" if self.type.floating else value
        lines = [
            f"{cell} += {number} ** {exponent} * {weight}"
            for cell, exponent in zip(cells, self.exponents, strict=True)
        ]
        if not self.type.floating:
            return lines
        return [f"if -INFINITY < {value} < INFINITY:", *(f"    {line}" for line in lines)]

    def describe(self, cells: Sequence[int]) -> dict[str, Json]:
        return {
            f"sum_of_{_POWERS[exponent]}": power_json(cell, self.type, exponent)
            for cell, exponent in zip(cells, self.exponents, strict=True)
        }


def variance(total: int, squares: int, count: int, unit: int, sample: int) -> float | None:
    """Return the variance of `count` numbers in units of 1/unit; `sample` is 1 for a sample."""
    fraction = _variance_fraction(total, squares, count, unit, sample)
    return None if fraction is None else round_ratio(*fraction)


def deviation(total: int, squares: int, count: int, unit: int, sample: int) -> float | None:
    """Return the square root of the variance, rounded once."""
    fraction = _variance_fraction(total, squares, count, unit, sample)
    return None if fraction is None else round_root(*fraction)


def float_spread(
    spread: Callable[[int, int, int, int, int], float | None],
    totals: tuple[int, int, int, int],
    squares: int,
    count: int,
    sample: int,
) -> float | None:
    """Return the variance or deviation of floats; it is NaN if one of them is not finite."""
    total, *others = totals
    if any(other > 0 for other in others):
        return NAN if count > sample else None
    return spread(total, squares, count, FLOAT_UNITS, sample)


def _variance_fraction(
    total: int, squares: int, count: int, unit: int, sample: int
) -> tuple[int, int] | None:
    """Return the exact fraction; None if there are too few values, or more retracted than added."""
    over = count * squares - total * total
    if count <= sample or over < 0:
        return None
    return over, count * (count - sample) * unit * unit


def round_root(numerator: int, denominator: int) -> float:
    """Return the square root of a fraction, rounded once to the nearest double."""
    shift = 2 * ROOT_BITS - numerator.bit_length() + denominator.bit_length()
    shift += shift & 1
    if shift >= 0:
        square, rest = divmod(numerator << shift, denominator)
    else:
        square, rest = divmod(numerator, denominator << -shift)
    root = math.isqrt(square)
    if rest or root * root != square:
        root |= 1  # an inexact root is made odd, so that the rounding below is correct
    half = shift >> 1
    try:
        return root / (1 << half) if half >= 0 else float(root << -half)
    except OverflowError:  # the deviation of a sample may exceed the greatest double
        return INFINITY


RUNTIME = (variance, deviation, float_spread)


def _needs(name: str, kind: SqlType) -> tuple[Accumulator, ...]:
    return (sum_of(name, kind), Powers(name, kind), Count(name))


def _spread_function(
    name: str, spread: str, sample: int, about: str, gives: float, synonyms: tuple[str, ...] = ()
) -> Function:
    def value(site: Site) -> list[str]:
        *totals, squares, count = site.cells
        if site.argument.floating:
            all_totals = f"({', '.join(totals)})"
            call = f"float_spread({spread}, {all_totals}, {squares}, {count}, {sample})"
        else:
            unit = 10 ** (site.argument.scale or 0)
            call = f"{spread}({totals[0]}, {squares}, {count}, {unit}, {sample})"
        return [f"{site.target} = {call}"]

    def result(argument: SqlType) -> SqlType:
        require_numeric(argument, name)
        return DOUBLE

    return Function(
        name,
        accumulators=_needs,
        result=result,
        value=value,
        about=f"{about} A DOUBLE from exact sums, rounded once.",
        example=f"{name}(cnt)",
        example_result=gives,
        synonyms=synonyms,
    )


FUNCTIONS = (
    _spread_function("VAR_POP", "variance", 0, "The variance of all values.", 4.1875),
    _spread_function(
        "VAR_SAMP",
        "variance",
        1,
        "The variance of a sample; NULL for fewer than two values.",
        5.583333333333333,
        synonyms=("VARIANCE",),
    ),
    _spread_function(
        "STDDEV_POP", "deviation", 0, "The square root of VAR_POP.", 2.0463381929681126
    ),
    _spread_function(
        "STDDEV_SAMP",
        "deviation",
        1,
        "The square root of VAR_SAMP; NULL for fewer than two values.",
        2.3629078131263044,
        synonyms=("STDDEV",),
    ),
)
