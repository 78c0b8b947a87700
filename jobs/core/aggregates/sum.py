"""SUM and AVG: exact, whatever the type.

Integers and decimals (integers of 10^-s) are Python integers. Binary floats are integers too,
of 2^-1074, the smallest float there is: so the sum of any floats is exact, order does not matter
and a retraction leaves nothing behind. NaN and the infinities are counted beside it, so that they
leave with their row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.core.aggregates import readable
from jobs.core.aggregates.base import Cell, Function, Site, Storage
from jobs.core.aggregates.count import Count
from jobs.core.plan.typing_rules import numeric
from jobs.core.values.exact_numbers import float_total
from jobs.core.values.json_values import Json
from schemas.types.sql_types import DECIMAL_PRECISION_MAX, Kind, SqlType, decimal, integer_range

# A DECIMAL(38, s) has room for 10^10 values of this precision.
DECIMAL_STORAGE_PRECISION_MAX = 28
AVERAGE_SCALE_MIN = 6


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of integers or decimals."""

    argument: str
    type: SqlType
    keeps_values: bool = False

    @property
    def cells(self) -> tuple[Cell, ...]:
        name = f"acc_sum_{self.argument}"
        scale = self.type.scale or 0
        if self.type.kind is Kind.DECIMAL:
            precision = self.type.precision or 0
            if precision > DECIMAL_STORAGE_PRECISION_MAX:
                return (Cell(name, Storage.TEXT, scale),)
        return (Cell(name, Storage.DECIMAL, scale),)

    def add(self, cells: Sequence[str], value: str, weight: str) -> list[str]:
        return [f"{cells[0]} += {value} * {weight}"]

    def told(self, cells: Sequence[int]) -> dict[str, Json]:
        if self.type.kind is Kind.DECIMAL:
            return {"sum": readable.units(cells[0], self.type.scale or 0)}
        return {"sum": readable.whole(cells[0])}


@dataclass(frozen=True, slots=True)
class FloatSum:
    """The sum of floats: finite ones in units of 2^-1074, the others counted by kind."""

    argument: str
    keeps_values: bool = False

    @property
    def cells(self) -> tuple[Cell, ...]:
        return (
            Cell(f"acc_sum_{self.argument}", Storage.TEXT),
            Cell(f"acc_nan_{self.argument}", Storage.BIGINT),
            Cell(f"acc_inf_{self.argument}", Storage.BIGINT),
            Cell(f"acc_neginf_{self.argument}", Storage.BIGINT),
        )

    def add(self, cells: Sequence[str], value: str, weight: str) -> list[str]:
        finite, nan, inf, neginf = cells
        return [
            f"if -INFINITY < {value} < INFINITY:",
            f"    {finite} += exact_float({value}) * {weight}",
            f"elif {value} != {value}:",
            f"    {nan} += {weight}",
            f"elif {value} > 0:",
            f"    {inf} += {weight}",
            "else:",
            f"    {neginf} += {weight}",
        ]

    def told(self, cells: Sequence[int]) -> dict[str, Json]:
        finite, nan, inf, neginf = cells
        total = readable.double(float_total(finite, 0, 0, 0))
        return {"sum": total, "nan": nan, "infinity": inf, "-infinity": neginf}


def sum_of(argument: str, sql_type: SqlType) -> Sum | FloatSum:
    return FloatSum(argument) if sql_type.floating else Sum(argument, sql_type)


def _fitted(target: str, exact: str, result: SqlType) -> list[str]:
    """Set target to the exact value, or to NULL, counted, where the type has no room for it."""
    if result.integer:
        low, high = integer_range(result)
    else:
        high = 10 ** (result.precision or DECIMAL_PRECISION_MAX) - 1
        low = -high
    return [
        f"{target} = {exact}",
        f"if not {low} <= {target} <= {high}:",
        f"    {target} = None",
        "    misfits[0] += 1",
    ]


def _unless_empty(target: str, count: str, lines: Sequence[str]) -> list[str]:
    return [
        f"if {count} == 0:",
        f"    {target} = None",
        "else:",
        *(f"    {line}" for line in lines),
    ]


def _sum(site: Site) -> list[str]:
    *total, count = site.cells
    if site.argument.floating:
        single = site.argument.kind is Kind.FLOAT
        lines = [f"{site.target} = float_total({', '.join(total)}, single={single})"]
    else:
        lines = _fitted(site.target, total[0], site.aggregate.type)
    return _unless_empty(site.target, count, lines)


def _average(site: Site) -> list[str]:
    *total, count = site.cells
    target, argument, result = site.target, site.argument, site.aggregate.type
    if argument.floating:
        single = argument.kind is Kind.FLOAT
        lines = [f"{target} = float_total({', '.join(total)}, {count}, single={single})"]
    elif argument.integer:
        lines = _fitted(target, f"truncated_quotient({total[0]}, {count})", result)
    else:
        shift = 10 ** ((result.scale or 0) - (argument.scale or 0))
        exact = f"half_up_quotient({total[0]} * {shift}, {count})"
        lines = _fitted(target, exact, result)
    return _unless_empty(target, count, lines)


def _sum_type(argument: SqlType) -> SqlType:
    numeric(argument, "SUM")
    if argument.kind is not Kind.DECIMAL:
        return argument
    return decimal(DECIMAL_PRECISION_MAX, argument.scale or 0)


def _average_type(argument: SqlType) -> SqlType:
    numeric(argument, "AVG")
    if argument.kind is not Kind.DECIMAL:
        return argument
    return decimal(DECIMAL_PRECISION_MAX, max(AVERAGE_SCALE_MIN, argument.scale or 0))


FUNCTIONS = (
    Function(
        "SUM",
        needs=lambda name, kind: (sum_of(name, kind), Count(name)),
        result=_sum_type,
        value=_sum,
        about="The sum. Its type is the argument's, of DECIMAL(p, s) it is DECIMAL(38, s); a sum "
        "that does not fit is NULL, and right again once it fits. Sums of floats are exact and "
        "rounded once.",
        example="SUM(cnt)",
        gives=19,
    ),
    Function(
        "AVG",
        needs=lambda name, kind: (sum_of(name, kind), Count(name)),
        result=_average_type,
        value=_average,
        about="The mean. Of whole numbers it is cut towards zero, of DECIMAL(p, s) rounded half up "
        "to DECIMAL(38, max(6, s)).",
        example="AVG(cnt)",
        gives=4,
    ),
)
