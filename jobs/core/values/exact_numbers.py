"""Exact arithmetic that generated code calls: floats as integers, rounding once, fitting."""

from __future__ import annotations

import math
import struct

INFINITY = math.inf
NAN = math.nan
FLOAT_UNIT_BITS = 1074
FLOAT_UNITS = 1 << FLOAT_UNIT_BITS
DECIMAL_LIMIT = 10**38
FLOAT32_MAX_ROUNDS_BELOW = 2.0**128 - 2.0**103


def exact_float(value: float) -> int:
    """A finite float as the integer number of 2^-1074 that it is."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << (FLOAT_UNIT_BITS + 1 - denominator.bit_length())


def rounded_double(units: int, count: int = 1) -> float:
    """units * 2^-1074 / count, rounded once to the nearest double."""
    if count < 0:
        units, count = -units, -count
    try:
        return units / (count << FLOAT_UNIT_BITS)
    except OverflowError:
        return INFINITY if units > 0 else -INFINITY


def rounded_float(units: int, count: int = 1) -> float:
    """units * 2^-1074 / count, rounded once to the nearest 32-bit float.

    Going through the nearest double would round twice; so the double is first made odd where it
    is not exact, after which the second rounding is right.
    """
    if count < 0:
        units, count = -units, -count
    nearest = rounded_double(units, count)
    if math.isfinite(nearest):
        error = units - exact_float(nearest) * count
        if error and not _odd(nearest):
            nearest = math.nextafter(nearest, INFINITY if error > 0 else -INFINITY)
    return float32(nearest)


def float32(value: float) -> float:
    """The nearest 32-bit float; beyond its range an infinity."""
    if not -FLOAT32_MAX_ROUNDS_BELOW < value < FLOAT32_MAX_ROUNDS_BELOW:
        return value if value != value else math.copysign(INFINITY, value)
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded + 0.0


def _odd(value: float) -> bool:
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bool(bits & 1)


def float_total(
    units: int, nan: int, inf: int, neginf: int, count: int = 1, *, single: bool = False
) -> float:
    """The value of a float sum (or, divided by count, average) from its four cells."""
    if nan > 0 or (inf > 0 and neginf > 0):
        return NAN
    if inf > 0 or neginf > 0:
        positive = (inf > 0) == (count > 0)
        return INFINITY if positive else -INFINITY
    return rounded_float(units, count) if single else rounded_double(units, count)


def truncated_quotient(total: int, count: int) -> int:
    """total / count towards zero, as integer AVG gives it."""
    quotient = abs(total) // abs(count)
    return quotient if (total < 0) == (count < 0) else -quotient


def half_up_quotient(total: int, count: int) -> int:
    """total / count to the nearest integer, halves away from zero, as DECIMAL AVG gives it."""
    quotient = (2 * abs(total) + abs(count)) // (2 * abs(count))
    return quotient if (total < 0) == (count < 0) else -quotient
