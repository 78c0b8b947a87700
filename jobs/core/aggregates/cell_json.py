"""Cells as JSON for people, in the explanation of a group."""

from __future__ import annotations

from jobs.core.values.exact_numbers import FLOAT_UNITS, round_ratio
from jobs.core.values.json_values import Json, render
from schemas.types.sql_types import DECIMAL_PRECISION_MAX, DOUBLE, SqlType, decimal

JSON_INTEGER_MAX = 2**53 - 1  # readers of JSON may round larger numbers, so these are text


def integer_json(number: int) -> Json:
    """Return an integer as a number, or as text if it is too large."""
    return number if abs(number) <= JSON_INTEGER_MAX else str(number)


def decimal_json(number: int, scale: int) -> Json:
    """Return a number of units of 10^-scale as a decimal."""
    return render(number, decimal(DECIMAL_PRECISION_MAX, scale))


def double_json(number: float) -> Json:
    return render(number, DOUBLE)


def power_json(number: int, sql_type: SqlType, exponent: int) -> Json:
    """Return a sum of powers of numbers of this type; those of floats as the nearest float."""
    if sql_type.floating:
        return double_json(round_ratio(number, FLOAT_UNITS**exponent))
    scale = exponent * (sql_type.scale or 0)
    return decimal_json(number, scale) if scale else integer_json(number)
