"""SKEWNESS, KURTOSIS and KURTOSIS_POP: from exact sums of powers, rounded once.

sums of x, x^2, x^3, x^4, count ──► central moments, as integers ──► an exact fraction
"""

from __future__ import annotations

from jobs.core.aggregates.count import Count
from jobs.core.aggregates.interfaces import Function, Site
from jobs.core.aggregates.sum import sum_of
from jobs.core.aggregates.variance import Powers, round_root
from jobs.core.plan.typing_rules import require_numeric
from jobs.core.values.exact_numbers import NAN, round_ratio
from schemas.types.sql_types import DOUBLE, SqlType


def skewness(powers: tuple[int, int, int, int], odd: bool, count: int) -> float | None:
    """Return the skewness of a sample; None for fewer than three values, or only equal ones."""
    s1, s2, s3, _ = powers
    second = count * s2 - s1 * s1
    if count <= 2 or (second <= 0 and not odd):
        return None
    if odd:
        return NAN
    third = count * count * s3 - 3 * count * s1 * s2 + 2 * s1**3
    root = round_root(count * (count - 1) * third**2, (count - 2) ** 2 * second**3)
    return -root if third < 0 else root


def kurtosis(powers: tuple[int, int, int, int], odd: bool, count: int, sample: int) -> float | None:
    """Return how much larger the fourth moment is than that of a normal distribution."""
    s1, s2, s3, s4 = powers
    second = count * s2 - s1 * s1
    if count <= 3 * sample or (second <= 0 and not odd):
        return None
    if odd:
        return NAN
    fourth = count**3 * s4 - 4 * count**2 * s1 * s3 + 6 * count * s1**2 * s2 - 3 * s1**4
    over, under = fourth, second * second
    if not sample:
        return round_ratio(over - 3 * under, under)
    over = (count - 1) * ((count + 1) * over - 3 * (count - 1) * under)
    return round_ratio(over, (count - 2) * (count - 3) * under)


RUNTIME = (skewness, kurtosis)


def _shape_function(name: str, call: str, option: str, about: str, gives: float) -> Function:
    def value(site: Site) -> list[str]:
        total, *others, squares, cubes, fourths, count = site.cells
        odd = " or ".join(f"{each} > 0" for each in others) or "False"
        powers = f"({total}, {squares}, {cubes}, {fourths})"
        return [f"{site.target} = {call}({powers}, {odd}, {count}{option})"]

    def result(argument: SqlType) -> SqlType:
        require_numeric(argument, name)
        return DOUBLE

    return Function(
        name,
        accumulators=lambda name, kind: (
            sum_of(name, kind),
            Powers(name, kind),
            Powers(name, kind, (3, 4)),
            Count(name),
        ),
        result=result,
        value=value,
        about=f"{about} NULL if all values are equal. A DOUBLE from exact sums, rounded once.",
        example=f"{name}(cnt)",
        example_result=gives,
    )


FUNCTIONS = (
    _shape_function(
        "SKEWNESS",
        "skewness",
        "",
        "The skewness of a sample; NULL for fewer than three values.",
        1.193823773706941,
    ),
    _shape_function(
        "KURTOSIS",
        "kurtosis",
        ", 1",
        "The excess kurtosis of a sample; NULL for fewer than four values.",
        0.4357317888171085,
    ),
    _shape_function(
        "KURTOSIS_POP", "kurtosis", ", 0", "The excess kurtosis of all values.", -1.1419024281577188
    ),
)
