"""Rounding and fitting, as SQL does it over integers of 10^-scale and floats."""

from __future__ import annotations

import math

from schemas.types.sql_types import SqlType, integer_range


class Failed(Exception):
    """A value that an expression cannot give: an overflow, a division by zero."""


def half_up(numerator: int, denominator: int) -> int:
    """The nearest whole number, halves away from zero."""
    quotient = (2 * abs(numerator) + abs(denominator)) // (2 * abs(denominator))
    return quotient if (numerator < 0) == (denominator < 0) else -quotient


def rescaled(units: int, scale: int, wanted: int) -> int:
    """Units of 10^-scale as units of 10^-wanted."""
    if wanted >= scale:
        return units * int(10 ** (wanted - scale))
    return half_up(units, 10 ** (scale - wanted))


def to_significant(units: int, scale: int, digits: int) -> tuple[int, int]:
    """Units and scale of the number rounded to so many digits."""
    excess = len(str(abs(units))) - digits
    if excess <= 0:
        return units, scale
    return half_up(units, 10**excess), scale - excess


def fitted(units: int, scale: int, target: SqlType) -> int:
    """The number as units of a DECIMAL; it fails where it has too many digits."""
    value = rescaled(units, scale, target.scale or 0)
    if abs(value) >= 10 ** (target.precision or 0):
        raise Failed(f"out of the range of {target}")
    return value


def in_range(value: int, target: SqlType) -> int:
    """The number where an integer type holds it."""
    low, high = integer_range(target)
    if not low <= value <= high:
        raise Failed(f"out of the range of {target}")
    return value


def canonical(value: float) -> float:
    """One NaN, and no -0.0."""
    return math.nan if value != value else value + 0.0
