"""Floats of 64 and 32 bits: one NaN, no negative zero, and conversions that round once."""

from __future__ import annotations

import math
import struct
from decimal import Decimal

from jobs.core.values.exact_numbers import to_float32

# The only NaN object: a dict finds NaN only by identity.
NAN = math.nan

_FLOAT_DIGITS_MAX = 9


def canonical_float(number: float) -> float:
    """Return the float with the only NaN object for NaN, and 0.0 for -0.0."""
    return NAN if math.isnan(number) else number + 0.0


def round_to_odd(text: str) -> float:
    """Return the double of `text`, with its last bit set if the text lies between two doubles.

    Rounding this double to 32 bits rounds the text once. Otherwise the first rounding could create
    a tie, which the second would resolve the wrong way.
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


def shortest_float(value: float) -> float:
    """Return the double with the fewest digits that rounds to this 32-bit float."""
    for digits in range(1, _FLOAT_DIGITS_MAX + 1):
        short = float(f"{value:.{digits}g}")
        if to_float32(short) == value:
            return short
    return value
