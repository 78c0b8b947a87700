"""Rounding and range checks of SQL, over decimals as integers of 10^-scale."""

from __future__ import annotations

from jobs.core.values.exact_numbers import divide_half_up
from schemas.types.sql_types import SqlType, integer_range


class EvaluationError(Exception):
    """An expression has no value for a row: an overflow, a division by zero."""


def rescale(units: int, scale: int, wanted: int) -> int:
    """Convert units of 10^-scale to units of 10^-wanted, rounding half up."""
    if wanted >= scale:
        return units * int(10 ** (wanted - scale))
    return divide_half_up(units, 10 ** (scale - wanted))


def to_significant(units: int, scale: int, digits: int) -> tuple[int, int]:
    """Round a number to so many significant digits; return its units and its scale."""
    excess = len(str(abs(units))) - digits
    if excess <= 0:
        return units, scale
    return divide_half_up(units, 10**excess), scale - excess


def fit_decimal(units: int, scale: int, target: SqlType) -> int:
    """Return the number as units of a DECIMAL; raise EvaluationError if it has too many digits."""
    value = rescale(units, scale, target.scale or 0)
    if abs(value) >= 10 ** (target.precision or 0):
        raise EvaluationError(f"out of the range of {target}")
    return value


def check_integer_range(value: int, target: SqlType) -> int:
    """Return the number; raise EvaluationError if the integer type cannot hold it."""
    low, high = integer_range(target)
    if not low <= value <= high:
        raise EvaluationError(f"out of the range of {target}")
    return value
