"""The algebra of accumulators, and the arithmetic that results are made with.

Laws first (a retraction undoes, deltas merge in any order), on random values of every type; then
floats against exact fractions, where the nearest representable number is found by searching; then
the divisions, against Python's decimal.
"""

from __future__ import annotations

import itertools
import math
import random
import struct
from collections.abc import Sequence
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal
from fractions import Fraction

import pytest

from jobs.core.fold.program import FIRST_CELL, ROW_COUNT, Delta, Program
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Value
from jobs.core.values.exact_numbers import (
    divide_half_up,
    divide_truncating,
    float_result,
    float_to_units,
    round_to_double,
    round_to_float,
    to_float32,
)
from schemas.types.sql_types import SqlType

INFINITY, NAN = math.inf, math.nan
FLOATS = [
    0.0,
    0.1,
    -0.1,
    0.2,
    1.0,
    -1.0,
    3.14,
    1e16,
    -1e16,
    1e-300,
    5e-324,
    -5e-324,
    1.7e308,
    2.5e-45,
]
VALUES: dict[str, list[Value]] = {
    "TINYINT": [-128, 127, 0, 1, None],
    "BIGINT": [-(2**63), 2**63 - 1, 0, 7, None],
    "DECIMAL(38, 3)": [10**38 - 1, -(10**38) + 1, 0, 5, None],
    "DOUBLE": [*FLOATS, NAN, INFINITY, -INFINITY, None],
    "FLOAT": [*map(to_float32, FLOATS), NAN, INFINITY, -INFINITY, None],
    "STRING": ["", "a", "é", None],
}
AGGREGATES = {
    "STRING": "COUNT(*) AS n, COUNT(v) AS some, MIN(v) AS low, MAX(v) AS top",
    "": "COUNT(*) AS n, COUNT(v) AS some, SUM(v) AS s, AVG(v) AS mean, MIN(v) AS low, "
    "MAX(v) AS top",
}


def program_of(sql_type: str) -> Program:
    aggregates = AGGREGATES.get(sql_type, AGGREGATES[""])
    columns = {"k": SqlType.parse("STRING"), "v": SqlType.parse(sql_type)}
    return Program(parse_query(f"SELECT k, {aggregates} FROM t GROUP BY k", columns))


def delta_of(program: Program, weighted: Sequence[tuple[Value, int]]) -> Delta:
    """Return the delta of these values, all of one group and without heads."""
    if not weighted:
        weighted = [(None, 0)]
    values, weights = zip(*weighted, strict=True)
    positions = range(len(values))
    return program.gather([("g",)] * len(values), values, positions, weights)["g",]


def numbers_of(program: Program, delta: Delta) -> list[int]:
    """Return the cells of a delta, and its multiset without cancelled values."""
    cells = FIRST_CELL + len(program.cells) - 1
    return [delta[ROW_COUNT], *delta[FIRST_CELL:cells]]


def multisets_of(program: Program, delta: Delta) -> list[dict[Value, int]]:
    kept = delta[FIRST_CELL + len(program.cells) - 1 :]
    return [{value: times for value, times in multiset.items() if times} for multiset in kept]


@pytest.mark.parametrize("sql_type", VALUES)
def test_what_was_added_and_retracted_never_was(sql_type: str) -> None:
    program, rng = program_of(sql_type), random.Random(sql_type)
    for _ in range(200):
        values = rng.choices(VALUES[sql_type], k=rng.randint(1, 8))
        there_and_back = [(value, 1) for value in values] + [(value, -1) for value in values]
        rng.shuffle(there_and_back)
        delta = delta_of(program, there_and_back)
        assert not any(numbers_of(program, delta))
        assert not any(multisets_of(program, delta))


@pytest.mark.parametrize("sql_type", VALUES)
def test_deltas_merge_in_any_order_and_any_grouping(sql_type: str) -> None:
    program, rng = program_of(sql_type), random.Random(sql_type)
    for _ in range(100):
        rows = [(rng.choice(VALUES[sql_type]), rng.choice((-2, -1, 1, 3))) for _ in range(9)]
        whole = program.merge(None, delta_of(program, rows))
        parts = [delta_of(program, rows[:3]), delta_of(program, rows[3:5])]
        parts.append(delta_of(program, rows[5:]))
        for order in itertools.permutations(parts):
            cells = None
            for part in order:
                cells = program.merge(cells, part)
            assert cells == whole


@pytest.mark.parametrize("sql_type", ["BIGINT", "DOUBLE", "STRING"])
def test_a_row_with_weight_counts_as_that_many_rows(sql_type: str) -> None:
    program = program_of(sql_type)
    for value in VALUES[sql_type]:
        thrice = delta_of(program, [(value, 3)])
        one_by_one = delta_of(program, [(value, 1)] * 3)
        assert numbers_of(program, thrice) == numbers_of(program, one_by_one)
        assert multisets_of(program, thrice) == multisets_of(program, one_by_one)


def test_the_order_of_rows_does_not_matter() -> None:
    program, rng = program_of("DOUBLE"), random.Random(1)
    rows = [(value, 1) for value in VALUES["DOUBLE"] if value not in (INFINITY, NAN)]
    results = set()
    for _ in range(50):
        rng.shuffle(rows)
        cells = program.merge(None, delta_of(program, rows))
        results.add(repr(program.result(cells, (None, None), [0])))
    assert len(results) == 1


# --- floats ---------------------------------------------------------------------------------


def exact(values: Sequence[float]) -> Fraction:
    return sum((Fraction(value) for value in values), Fraction(0))


def random_floats(rng: random.Random) -> list[float]:
    """Return floats of all sizes, often neighbours, so that sums fall between two floats."""
    exponent = rng.choice((0, 0, 10, 53, 300, -300, -1060))
    return [
        math.ldexp(rng.uniform(-1, 1), exponent + rng.randint(-60, 5))
        for _ in range(rng.randint(1, 6))
    ]


def test_a_float_is_an_integer_of_the_smallest_float() -> None:
    for value in [*FLOATS, 2.0**-1074, math.ldexp(1 - 2.0**-53, 1024), 2.0**-1022]:
        assert Fraction(float_to_units(value), 2**1074) == Fraction(value)


def test_sums_and_averages_of_doubles_are_the_nearest_double() -> None:
    rng = random.Random(2)
    for _ in range(3_000):
        values = random_floats(rng)
        units, count = sum(map(float_to_units, values)), len(values)
        total = exact(values)  # int / int is rounded correctly by Python
        assert round_to_double(units) == total.numerator / total.denominator
        mean = total / count
        assert round_to_double(units, count) == mean.numerator / mean.denominator
        assert round_to_double(-units, -count) == round_to_double(units, count)


def nearest_float32(number: Fraction) -> float:
    """Search for the nearest 32-bit float around a first guess, ties to even."""
    if abs(number) >= 2**128 - 2**103:
        return math.copysign(INFINITY, number)
    (bits,) = struct.unpack("<I", struct.pack("<f", to_float32(abs(float(number)))))
    around = [b for b in range(bits - 2, bits + 3) if 0 <= b < 0x7F800000]

    def distance(candidate: int) -> tuple[Fraction, int]:
        (value,) = struct.unpack("<f", struct.pack("<I", candidate))
        return abs(Fraction(value) - abs(number)), candidate & 1

    (magnitude,) = struct.unpack("<f", struct.pack("<I", min(around, key=distance)))
    return math.copysign(magnitude, number) if magnitude else 0.0


def test_sums_and_averages_of_32_bit_floats_are_rounded_once() -> None:
    rng = random.Random(3)
    for _ in range(3_000):
        values = [to_float32(value) for value in random_floats(rng)]
        values = [value for value in values if math.isfinite(value)] or [0.5]
        units, count = sum(map(float_to_units, values)), len(values)
        assert round_to_float(units) == nearest_float32(exact(values))
        assert round_to_float(units, count) == nearest_float32(exact(values) / count)


def test_a_sum_just_above_a_tie_of_32_bit_floats_goes_up() -> None:
    """Rounding to a double first would create a tie, which goes to the even float below."""
    values = [1.0, 2.0**-24, 2.0**-80]
    units = sum(map(float_to_units, values))
    assert round_to_double(units) == 1.0 + 2.0**-24
    assert round_to_float(units) == 1.0 + 2.0**-23
    assert to_float32(round_to_double(units)) == 1.0


def test_no_float_result_is_minus_zero() -> None:
    for rounded in (
        round_to_double(0),
        round_to_float(-1),
        to_float32(-1e-60),
        round_to_double(0, -3),
    ):
        assert math.copysign(1, rounded) == 1


def test_a_sum_beyond_the_doubles_is_an_infinity_until_it_fits_again() -> None:
    greatest = math.ldexp(1 - 2.0**-53, 1024)
    units = float_to_units(greatest)
    assert round_to_double(units + units) == INFINITY
    assert round_to_double(-units - units) == -INFINITY
    assert round_to_double(units + units - units) == greatest
    assert round_to_double(units + units, 2) == greatest


@pytest.mark.parametrize(
    ("nan", "inf", "neginf", "total"),
    [
        (0, 0, 0, 1.0),
        (1, 0, 0, NAN),
        (0, 1, 0, INFINITY),
        (0, 0, 1, -INFINITY),
        (0, 1, 1, NAN),
        (1, 1, 0, NAN),
        (-1, 0, 0, 1.0),
        (0, -1, 0, 1.0),
    ],
)
def test_what_is_not_finite_decides_only_while_it_is_there(
    nan: int, inf: int, neginf: int, total: float
) -> None:
    got = float_result(float_to_units(1.0), nan, inf, neginf)
    assert repr(got) == repr(total)


# --- divisions and bounds -------------------------------------------------------------------


def test_integer_averages_truncate_and_decimal_ones_round_half_up() -> None:
    wide = Context(prec=60)
    for total, count in itertools.product(range(-25, 26), (*range(-6, 0), *range(1, 7))):
        quotient = wide.divide(Decimal(total), Decimal(count))
        assert divide_truncating(total, count) == int(quotient.to_integral_value(ROUND_DOWN))
        assert divide_half_up(total, count) == int(quotient.to_integral_value(ROUND_HALF_UP))


@pytest.mark.parametrize(
    ("sql_type", "fits", "too_much"),
    [
        ("TINYINT", 127, 1),
        ("SMALLINT", -32_768, -1),
        ("INT", 2**31 - 1, 1),
        ("BIGINT", -(2**63), -1),
        ("DECIMAL(38, 3)", 10**38 - 1, 1),
    ],
)
def test_a_sum_beyond_its_type_is_null_and_counted_and_comes_back(
    sql_type: str, fits: int, too_much: int
) -> None:
    columns = {"v": SqlType.parse(sql_type)}
    program = Program(parse_query("SELECT SUM(v) AS s FROM t", columns))
    at = [((),), (fits,), (0,), (1,)]
    misfits = [0]
    cells = program.merge(None, program.gather(*at)[()])
    assert program.result(cells, (), misfits) == (fits,)
    cells = program.merge(cells, program.gather(((),), (too_much,), (0,), (1,))[()])
    assert program.result(cells, (), misfits) == (None,)
    assert misfits == [1]
    cells = program.merge(cells, program.gather(((),), (too_much,), (0,), (-1,))[()])
    assert program.result(cells, (), misfits) == (fits,)
    assert misfits == [1]


def test_an_average_of_decimals_that_needs_more_digits_than_there_are_is_null() -> None:
    columns = {"v": SqlType.parse("DECIMAL(38, 0)")}
    program = Program(parse_query("SELECT AVG(v) AS mean, SUM(v) AS s FROM t", columns))
    misfits = [0]
    cells = program.merge(None, program.gather(((),), (10**32,), (0,), (1,))[()])
    assert program.result(cells, (), misfits) == (None, 10**32)  # 33 digits and 6 of the scale
    assert misfits == [1]
