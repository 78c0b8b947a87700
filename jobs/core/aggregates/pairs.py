"""COVAR_POP, COVAR_SAMP, CORR and REGR_*: two numbers of each row, from exact sums.

    sums of y, x, yy, xx, yx, and the number of pairs ──► an exact fraction ──► rounded once

A row counts if both numbers are there. Each sum is an integer in units of its arguments, so a
retraction undoes its row exactly, and large values that are close together lose no digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jobs.core.aggregates.cell_json import double_json, power_json
from jobs.core.aggregates.count import Count
from jobs.core.aggregates.interfaces import Accumulator, Cell, Function, Site, Storage
from jobs.core.aggregates.variance import round_root
from jobs.core.plan.typing_rules import require_numeric
from jobs.core.values.exact_numbers import FLOAT_UNITS, NAN, round_ratio
from jobs.core.values.json_values import Json
from schemas.types.sql_types import BIGINT, DOUBLE, SqlType

_SUMS = ("y", "x", "yy", "xx", "yx")


def _unit(sql_type: SqlType) -> int:
    return FLOAT_UNITS if sql_type.floating else 10 ** (sql_type.scale or 0)


@dataclass(frozen=True, slots=True)
class PairSums(Accumulator):
    """The sums of finite pairs, and the number of pairs with NaN or an infinity."""

    type: SqlType  # ROW of y and x

    @property
    def cells(self) -> tuple[Cell, ...]:
        sums = (Cell(f"acc_sum_{name}_{self.argument}", Storage.TEXT) for name in _SUMS)
        return (*sums, Cell(f"acc_odd_{self.argument}", Storage.BIGINT))

    def add(self, cells: Sequence[str], value: str, weight: str) -> list[str]:
        y, x, yy, xx, yx, odd = cells
        parts = [
            f"float_to_units({value}[{index}])" if item.floating else f"{value}[{index}]"
            for index, item in enumerate(self.type.items)
        ]
        return [
            f"if all(-INFINITY < part < INFINITY for part in {value}):",
            f"    pair_y, pair_x = {', '.join(parts)}",
            f"    {y} += pair_y * {weight}",
            f"    {x} += pair_x * {weight}",
            f"    {yy} += pair_y * pair_y * {weight}",
            f"    {xx} += pair_x * pair_x * {weight}",
            f"    {yx} += pair_y * pair_x * {weight}",
            "else:",
            f"    {odd} += {weight}",
        ]

    def describe(self, cells: Sequence[int]) -> dict[str, Json]:
        y, x, yy, xx, yx, odd = cells
        of_y, of_x = self.type.items
        return {
            "sum_y": power_json(y, of_y, 1),
            "sum_x": power_json(x, of_x, 1),
            "sum_yy": power_json(yy, of_y, 2),
            "sum_xx": power_json(xx, of_x, 2),
            "sum_yx": double_json(round_ratio(yx, _unit(of_y) * _unit(of_x))),
            "not_finite": odd,
        }


class _Pairs(NamedTuple):
    """The pairs of a group; sums of deviations are `number` times as large."""

    number: int
    y: int
    x: int
    yy: int  # number * the sum of squared deviations of y
    xx: int
    yx: int
    unit_y: int
    unit_x: int


Fraction = tuple[int, int]

_FORMULAS: dict[str, Callable[[_Pairs], Fraction | None]] = {
    "COVAR_POP": lambda p: (p.yx, p.number * p.number * p.unit_y * p.unit_x),
    "COVAR_SAMP": lambda p: (
        (p.yx, p.number * (p.number - 1) * p.unit_y * p.unit_x) if p.number > 1 else None
    ),
    "REGR_AVGX": lambda p: (p.x, p.number * p.unit_x),
    "REGR_AVGY": lambda p: (p.y, p.number * p.unit_y),
    "REGR_SXX": lambda p: (p.xx, p.number * p.unit_x * p.unit_x),
    "REGR_SYY": lambda p: (p.yy, p.number * p.unit_y * p.unit_y),
    "REGR_SXY": lambda p: (p.yx, p.number * p.unit_y * p.unit_x),
    "REGR_SLOPE": lambda p: (p.yx * p.unit_x, p.xx * p.unit_y) if p.xx else None,
    "REGR_INTERCEPT": lambda p: (
        (p.y * p.xx - p.yx * p.x, p.number * p.xx * p.unit_y) if p.xx else None
    ),
    "REGR_R2": lambda p: None if not p.xx else (p.yx * p.yx, p.xx * p.yy) if p.yy else (1, 1),
    "CORR": lambda p: (p.yx * p.yx, p.xx * p.yy) if p.xx and p.yy else None,
}


def pair_value(
    name: str, sums: tuple[int, int, int, int, int], odd: int, count: int, units: tuple[int, int]
) -> float | None:
    """Return the value of a function of pairs; NaN if one of them is not finite."""
    y, x, yy, xx, yx = sums
    if count <= 0:
        return None
    if odd > 0:
        return NAN
    pairs = _Pairs(count, y, x, count * yy - y * y, count * xx - x * x, count * yx - y * x, *units)
    fraction = _FORMULAS[name](pairs)
    if fraction is None or pairs.yy < 0 or pairs.xx < 0:  # more retracted than added
        return None
    if name == "CORR":
        root = round_root(*fraction)
        return -root if pairs.yx < 0 else root
    return round_ratio(*fraction)


RUNTIME = (pair_value,)


def _pair_function(name: str, about: str, gives: float) -> Function:
    def value(site: Site) -> list[str]:
        *sums, odd, count = site.cells
        units = ", ".join(str(_unit(item)) for item in site.argument.items)
        call = f"pair_value({name!r}, ({', '.join(sums)}), {odd}, {count}, ({units}))"
        return [f"{site.target} = {call}"]

    return Function(
        name,
        accumulators=lambda argument, kind: (PairSums(argument, kind), Count(argument)),
        result=lambda argument: _result(name, argument, DOUBLE),
        value=value,
        about=f"{about} A DOUBLE from exact sums, rounded once.",
        example=f"{name}(cnt, day)",
        example_result=gives,
        is_of_pairs=True,
    )


def _result(name: str, argument: SqlType, result: SqlType) -> SqlType:
    for item in argument.items or (argument,):
        require_numeric(item, name)
    return result


FUNCTIONS = (
    _pair_function("COVAR_POP", "The covariance of all pairs (y, x) without a NULL.", 2.4375),
    _pair_function(
        "COVAR_SAMP", "The covariance of a sample; NULL for fewer than two pairs.", 3.25
    ),
    _pair_function(
        "CORR",
        "The correlation, from -1 to 1; NULL if y or x is always the same.",
        0.8053658004252909,
    ),
    Function(
        "REGR_COUNT",
        accumulators=lambda name, _: (Count(name),),
        result=lambda argument: _result("REGR_COUNT", argument, BIGINT),
        value=lambda site: [f"{site.target} = {site.cells[0]}"],
        about="The number of pairs (y, x) in which both have a value.",
        example="REGR_COUNT(cnt, day)",
        example_result=4,
        is_of_pairs=True,
    ),
    _pair_function(
        "REGR_SLOPE", "The slope of the line of least squares, y over x.", 1.1142857142857143
    ),
    _pair_function("REGR_INTERCEPT", "The y of that line at x = 0.", 1.6857142857142857),
    _pair_function(
        "REGR_R2", "The square of CORR; 1 if only y is always the same.", 0.6486140724946695
    ),
    _pair_function("REGR_AVGX", "The mean of x.", 2.75),
    _pair_function("REGR_AVGY", "The mean of y.", 4.75),
    _pair_function("REGR_SXX", "The sum of the squared deviations of x.", 8.75),
    _pair_function("REGR_SYY", "The sum of the squared deviations of y.", 16.75),
    _pair_function("REGR_SXY", "The sum of the products of both deviations.", 9.75),
)
