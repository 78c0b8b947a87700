"""EXP, LN and POWER with the same last digit on every machine, as Java's StrictMath has it.

The last digit of a C library depends on its version. A retraction must have the value of its
insertion, also after an upgrade, so the polynomials are here. They are those of FDLIBM:

Copyright (C) 1993 by Sun Microsystems, Inc. All rights reserved. Developed at SunSoft, a Sun
Microsystems, Inc. business. Permission to use, copy, modify, and distribute this software is
freely granted, provided that this notice is preserved.
"""

from __future__ import annotations

import math
import struct

from jobs.core.values.rounding import EvaluationError

_BITS, _DOUBLE = struct.Struct("<q"), struct.Struct("<d")
_UNIT = 1 << 20  # of the exponent, in the high word
_HIGHEST_ONE = 0x3FF00000  # the high word of 1.0

_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_LN2, _LOG2_E = 6.93147180559945286227e-01, 1.44269504088896338700e00
_LOG = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)
_EXP = (
    1.66666666666666019037e-01,
    -2.77777777770155933842e-03,
    6.61375632143793436117e-05,
    -1.65339022054652515390e-06,
    4.13813679705723846039e-08,
)
_POWER = (
    5.99999999999994648725e-01,
    4.28571428578550184252e-01,
    3.33333329818377432918e-01,
    2.72728123808534006489e-01,
    2.30660745775561754067e-01,
    2.06975017800338417784e-01,
)
_EXP_MAX, _EXP_MIN = 7.09782712893383973096e02, -7.45133219101941108420e02


def _not_defined() -> EvaluationError:
    return EvaluationError("not defined, or too large")


def _high(x: float) -> int:
    """Return the high word of a double, with its sign."""
    (bits,) = _BITS.unpack(_DOUBLE.pack(x))
    return int(bits) >> 32


def _with_high(high: int, x: float = 0.0) -> float:
    """Return a double with this high word and the low word of `x`."""
    (bits,) = _BITS.unpack(_DOUBLE.pack(x))
    (made,) = _DOUBLE.unpack(_BITS.pack((high << 32) | (bits & 0xFFFFFFFF)))
    return float(made)


def _cut(x: float) -> float:
    """Return a double without the bits of its low word."""
    return _with_high(_high(x))


def _horner(coefficients: tuple[float, ...], x: float) -> float:
    value = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        value = coefficient + x * value
    return value


def natural_logarithm(x: float) -> float:
    """Return ln(x); raise EvaluationError unless x > 0 or NaN."""
    if x <= 0:
        raise _not_defined()
    return x if x - x != 0 else _log(x)


def _log(x: float) -> float:
    """Return the logarithm of a positive finite number."""
    k, high = 0, _high(x)
    if high < _UNIT:  # subnormal
        k, x = -54, x * 2.0**54
        high = _high(x)
    k += (high >> 20) - 1023
    high &= 0xFFFFF
    carry = (high + 0x95F64) & _UNIT
    x = _with_high(high | (carry ^ _HIGHEST_ONE), x)  # from sqrt(2) / 2 to sqrt(2)
    k += carry >> 20
    f = x - 1.0
    if (0xFFFFF & (2 + high)) < 3:
        r = f * f * (0.5 - 0.33333333333333333 * f)
        return f - r if k == 0 else k * _LN2_HIGH - ((r - k * _LN2_LOW) - f)
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    r = z * _horner(_LOG[::2], w) + w * _horner(_LOG[1::2], w)
    if ((high - 0x6147A) | (0x6B851 - high)) > 0:
        half = 0.5 * f * f
        if k == 0:
            return f - (half - s * (half + r))
        return k * _LN2_HIGH - ((half - (s * (half + r) + k * _LN2_LOW)) - f)
    if k == 0:
        return f - s * (f - r)
    return k * _LN2_HIGH - ((s * (f - r) - k * _LN2_LOW) - f)


def logarithm_to_10(x: float) -> float:
    if not 0 < x < math.inf:
        return natural_logarithm(x)
    k = 0
    if _high(x) < _UNIT:
        k, x = -54, x * 2.0**54
    high = _high(x)
    k += (high >> 20) - 1023
    negative = int(k < 0)
    x = _with_high((high & 0xFFFFF) | ((0x3FF - negative) << 20), x)
    whole = float(k + negative)
    low = whole * 3.69423907715893078616e-13 + 4.34294481903251816668e-01 * _log(x)
    return low + whole * 3.01029995663611771306e-01


def logarithm_to_2(x: float) -> float:
    return natural_logarithm(x) / _log(2.0)


def logarithm(base: float, x: float) -> float:
    if x <= 0 or base <= 0 or base == 1:
        raise _not_defined()
    return natural_logarithm(x) / natural_logarithm(base)


def exponential(x: float) -> float:
    """Return e^x; raise EvaluationError if that is beyond the doubles."""
    if x - x != 0:
        return 0.0 if x < 0 else x
    if x > _EXP_MAX:
        raise _not_defined()
    if x < _EXP_MIN:
        return 0.0
    size, k, high_part, low_part = _high(abs(x)), 0, x, 0.0
    if size > 0x3FD62E42:  # beyond ln(2) / 2
        sign = -1 if x < 0 else 1
        k = sign if size < 0x3FF0A2B2 else int(_LOG2_E * x + sign * 0.5)
        high_part, low_part = x - k * _LN2_HIGH, k * _LN2_LOW
        x = high_part - low_part
    elif size < 0x3E300000:
        return 1.0 + x
    t = x * x
    c = x - t * _horner(_EXP, t)
    if k == 0:
        return 1.0 - ((x * c) / (c - 2.0) - x)
    y = 1.0 - ((low_part - (x * c) / (2.0 - c)) - high_part)
    return math.ldexp(y, k) if k >= -1021 else math.ldexp(y, k + 1000) * 2.0**-1000


def power(x: float, y: float) -> float:
    """Return x^y; raise EvaluationError if finite numbers have no finite power."""
    if math.isfinite(x) and math.isfinite(y):
        found = _finite_power(x, y)
        if found - found != 0:
            raise _not_defined()
        return found
    if y == 0:
        return 1.0
    if x != x or y != y or (abs(x) == 1 and math.isinf(y)):
        return math.nan
    return math.inf if x == 0 and y < 0 else math.pow(x, y)


def _finite_power(x: float, y: float) -> float:
    if y == 0:
        return 1.0
    if y == 2:
        return x * x
    if abs(y) == 1:
        return x if y == 1 else 1.0 / x if x else math.inf
    if x == 0:
        return 0.0 if y > 0 else math.inf
    if y == 0.5:
        return math.sqrt(x) if x > 0 else math.nan
    if x < 0 and not y.is_integer():
        return math.nan
    sign = -1.0 if x < 0 and y % 2 == 1 else 1.0
    if abs(x) == 1:
        return sign
    logarithm_high, logarithm_low = _log_to_2(abs(x), near_one=abs(y) > 2.0**31 + 2.0**11)
    y_high = _cut(y)
    low = (y - y_high) * logarithm_high + y * logarithm_low
    high = y_high * logarithm_high
    return sign * _two_to(high, low)


def _log_to_2(x: float, *, near_one: bool) -> tuple[float, float]:
    """Return the logarithm of x as the sum of a number of 21 bits and a rest."""
    if near_one and 0.9999995231628418 <= x <= 1.0000009536743162:
        t = x - 1.0
        w = (t * t) * (0.5 - t * (0.3333333333333333333333 - t * 0.25))
        u = 1.44269502162933349609e00 * t
        v = t * 1.92596299112661746887e-08 - w * _LOG2_E
        high = _cut(u + v)
        return high, v - (high - u)
    n = 0
    if _high(x) < _UNIT:
        n, x = -53, x * 2.0**53
    word = _high(x)
    n += (word >> 20) - 0x3FF
    fraction = word & 0xFFFFF
    word = fraction | _HIGHEST_ONE
    k = int(0x3988E < fraction < 0xBB67A)  # around 1.5, not around 1 or 2
    if fraction >= 0xBB67A:
        n, word = n + 1, word - _UNIT
    x = _with_high(word, x)
    point = 1.5 if k else 1.0
    point_high = 5.84962487220764160156e-01 if k else 0.0
    point_low = 1.35003920212974897128e-08 if k else 0.0
    u, v = x - point, 1.0 / (x + point)
    s = u * v
    s_high = _cut(s)
    t_high = _with_high(((word >> 1) | 0x20000000) + 0x00080000 + (k << 18))
    t_low = x - (t_high - point)
    s_low = v * ((u - s_high * t_high) - s_high * t_low)
    square = s * s
    r = square * square * _horner(_POWER, square) + s_low * (s_high + s)
    square = s_high * s_high
    t_high = _cut(3.0 + square + r)
    t_low = r - ((t_high - 3.0) - square)
    u, v = s_high * t_high, s_low * t_high + t_low * s
    high = _cut(u + v)
    low = v - (high - u)
    z_high = 9.61796700954437255859e-01 * high
    z_low = -7.02846165095275826516e-09 * high + low * 9.61796693925975554329e-01 + point_low
    whole = _cut(((z_high + z_low) + point_high) + n)
    return whole, z_low - (((whole - n) - point_high) - z_high)


def _two_to(high: float, low: float) -> float:
    """Return 2^(high + low)."""
    z = low + high
    if z >= 1024 and (z > 1024 or low + 8.0085662595372944372e-17 > z - high):
        return math.inf
    if z <= -1075 and (z < -1075 or low <= z - high):
        return 0.0
    size, n = _cut(abs(z)), 0
    if size > 0.5:
        n = int(size + 0.5) * (1 if z > 0 else -1)
        high -= n
    t = _cut(low + high)
    u = t * 6.93147182464599609375e-01
    v = (low - (t - high)) * _LN2 + t * -1.90465429995776804525e-09
    z = u + v
    w = v - (z - u)
    t = z * z
    c = z - t * _horner(_EXP, t)
    r = (z * c) / (c - 2.0) - (w + z * w)
    return math.ldexp(1.0 - (r - z), n)
