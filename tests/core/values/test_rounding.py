"""Rounding and range checks, compared with Python's decimals. (A mutant of divide_half_up survived
until then, because only tests with Spark covered it.)"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Context, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.values.exact_numbers import divide_half_up
from jobs.core.values.float_values import canonical_float
from jobs.core.values.rounding import (
    EvaluationError,
    check_integer_range,
    fit_decimal,
    rescale,
    to_significant,
)
from schemas.types.sql_types import SqlType

EXACT = Context(prec=200, rounding=ROUND_HALF_UP)
UNITS = st.integers(-(10**30), 10**30)


@given(UNITS, st.integers(-(10**6), 10**6).filter(bool))
def test_half_up_takes_the_nearest_and_halves_away_from_zero(number: int, by: int) -> None:
    twice, rest = divmod(2 * abs(number), abs(by))
    nearest = (twice + 1) // 2  # of the half units below and above
    assert divide_half_up(number, by) == (nearest if (number < 0) == (by < 0) else -nearest)
    assert rest >= 0


@pytest.mark.parametrize(
    "number, by, rounded",
    [
        (5, 2, 3),
        (-5, 2, -3),
        (5, -2, -3),
        (4, 3, 1),
        (-4, 3, -1),
        (0, 7, 0),
        (149, 100, 1),
        (150, 100, 2),
        (-150, 100, -2),
    ],
)
def test_half_up_by_example(number: int, by: int, rounded: int) -> None:
    assert divide_half_up(number, by) == rounded


@given(UNITS, st.integers(0, 20), st.integers(0, 20))
def test_another_scale_is_the_number_rounded_half_up(units: int, scale: int, wanted: int) -> None:
    number = Decimal(units).scaleb(-scale, EXACT)
    rounded = number.quantize(Decimal(1).scaleb(-wanted), context=EXACT)
    assert rescale(units, scale, wanted) == int(rounded.scaleb(wanted, EXACT))


@given(UNITS, st.integers(0, 20), st.integers(1, 40))
def test_so_many_digits_stay(units: int, scale: int, digits: int) -> None:
    kept, new_scale = to_significant(units, scale, digits)
    rounded = Context(prec=digits, rounding=ROUND_HALF_UP).create_decimal(
        Decimal(units).scaleb(-scale, EXACT)
    )
    assert Decimal(kept).scaleb(-new_scale, EXACT) == rounded


def test_what_has_too_many_digits_fails() -> None:
    target = SqlType.parse("DECIMAL(4, 2)")
    assert fit_decimal(99_994, 3, target) == 9_999
    for units in (99_995, -99_995, 10**9):
        with pytest.raises(EvaluationError, match="out of the range"):
            fit_decimal(units, 3, target)


def test_integers_have_their_range() -> None:
    tiny = SqlType.parse("TINYINT")
    assert [check_integer_range(value, tiny) for value in (-128, 127)] == [-128, 127]
    for value in (-129, 128):
        with pytest.raises(EvaluationError, match="out of the range"):
            check_integer_range(value, tiny)


def test_there_is_one_nan_and_no_negative_zero() -> None:
    assert math.isnan(canonical_float(-math.nan))
    assert math.copysign(1, canonical_float(-0.0)) == 1
