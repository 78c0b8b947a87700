"""Readable: sums as people read them, for who asks what a group remembers."""

from __future__ import annotations

from jobs.core.values.exact_numbers import FLOAT_UNITS, INFINITY
from jobs.core.values.json_values import Json, render
from schemas.types.sql_types import DECIMAL_PRECISION_MAX, DOUBLE, decimal

JSON_INTEGER_MAX = 2**53 - 1  # beyond it readers of JSON round; such numbers are text


def whole(number: int) -> Json:
    return number if abs(number) <= JSON_INTEGER_MAX else str(number)


def units(number: int, scale: int) -> Json:
    """A number of units of 10^-scale."""
    return render(number, decimal(DECIMAL_PRECISION_MAX, scale))


def double(number: float) -> Json:
    return render(number, DOUBLE)


def squares(number: int) -> Json:
    """A sum of squares of floats, in units of 2^-2148, as the nearest float."""
    try:
        return double(number / (FLOAT_UNITS * FLOAT_UNITS))
    except OverflowError:
        return double(INFINITY)
