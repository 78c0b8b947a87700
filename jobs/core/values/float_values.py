"""Floats of 64 and 32 bits: one NaN, no negative zero, and roundings that happen once."""

from __future__ import annotations

import math
import struct
from decimal import Decimal

# The one NaN: Python finds it again in a dict because it is the same object.
NAN = math.nan

_FLOAT_DIGITS_MAX = 9


def canonical_float(number: float) -> float:
    """The one representation of a float: one NaN, and no negative zero."""
    return NAN if math.isnan(number) else number + 0.0


def rounded_to_odd(text: str) -> float:
    """The double of `text`, with its last bit set where the text lies between two doubles.

    Rounding such a double to 32 bits is rounding the text once: a tie that the first rounding
    made up would otherwise go the wrong way.
    """
    near = float(text)
    exact = Decimal(text)
    if math.isinf(near) or exact == Decimal(near):
        return near
    if abs(Decimal(near)) > abs(exact):
        near = math.nextafter(near, 0.0)
    (bits,) = struct.unpack("<q", struct.pack("<d", near))
    (odd,) = struct.unpack("<d", struct.pack("<q", bits | 1))
    return float(odd)


def nearest_float(number: float) -> float:
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        return math.copysign(math.inf, number)
    return canonical_float(rounded)


def shortest_float(value: float) -> float:
    for digits in range(1, _FLOAT_DIGITS_MAX + 1):
        short = float(f"{value:.{digits}g}")
        if nearest_float(short) == value:
            return short
    return value
