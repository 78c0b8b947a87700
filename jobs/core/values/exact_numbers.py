"""Exact arithmetic for generated code: floats as integers, and quotients rounded once."""

from __future__ import annotations

import math
import struct

INFINITY = math.inf
NAN = math.nan
FLOAT_UNIT_BITS = 1074
FLOAT_UNITS = 1 << FLOAT_UNIT_BITS
FLOAT32_MAX_ROUNDS_BELOW = 2.0**128 - 2.0**103


def float_to_units(value: float) -> int:
    """Return a finite float as an integer number of units of 2^-1074."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << (FLOAT_UNIT_BITS + 1 - denominator.bit_length())


def round_ratio(over: int, under: int) -> float:
    """Return over / under, rounded once; under is positive."""
    try:
        return over / under
    except OverflowError:
        return INFINITY if over > 0 else -INFINITY


def round_to_double(units: int, count: int = 1) -> float:
    """Return units * 2^-1074 / count, rounded once to the nearest double."""
    if count < 0:
        units, count = -units, -count
    return round_ratio(units, count << FLOAT_UNIT_BITS)


def round_to_float(units: int, count: int = 1) -> float:
    """Return units * 2^-1074 / count, rounded once to the nearest 32-bit float.

    Rounding to a double first would round twice. So an inexact double is first made odd, after
    which the second rounding is correct.
    """
    if count < 0:
        units, count = -units, -count
    nearest = round_to_double(units, count)
    if math.isfinite(nearest):
        error = units - float_to_units(nearest) * count
        if error and not _is_odd(nearest):
            nearest = math.nextafter(nearest, INFINITY if error > 0 else -INFINITY)
    return to_float32(nearest)


def to_float32(value: float) -> float:
    """Return the nearest 32-bit float, or an infinity beyond its range."""
    if not -FLOAT32_MAX_ROUNDS_BELOW < value < FLOAT32_MAX_ROUNDS_BELOW:
        return value if value != value else math.copysign(INFINITY, value)
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded + 0.0


def _is_odd(value: float) -> bool:
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bool(bits & 1)


def float_result(
    units: int, nan: int, inf: int, neginf: int, count: int = 1, *, single: bool = False
) -> float:
    """Return a float sum, or an average over `count`, from the four cells of its accumulator."""
    if nan > 0 or (inf > 0 and neginf > 0):
        return NAN
    if inf > 0 or neginf > 0:
        positive = (inf > 0) == (count > 0)
        return INFINITY if positive else -INFINITY
    return round_to_float(units, count) if single else round_to_double(units, count)


def divide_truncating(total: int, count: int) -> int:
    """Return total / count rounded towards zero, as AVG of integers does."""
    quotient = abs(total) // abs(count)
    return quotient if (total < 0) == (count < 0) else -quotient


def divide_half_up(total: int, count: int) -> int:
    """Return total / count rounded to an integer, halves away from zero, as DECIMAL does."""
    quotient = (2 * abs(total) + abs(count)) // (2 * abs(count))
    return quotient if (total < 0) == (count < 0) else -quotient
