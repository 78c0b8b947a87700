"""SUM and AVG, exact for every type.

Integers and decimals (units of 10^-s) are Python integers. Floats are integers too, in units of
2^-1074, the smallest positive float. So the sum of floats is exact, their order does not matter,
and a retraction undoes its row exactly. NaN and infinities are counted separately, so that they
disappear with their row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.core.aggregates.cell_json import decimal_json, double_json, integer_json
from jobs.core.aggregates.count import Count
from jobs.core.aggregates.interfaces import Accumulator, Cell, Function, Site, Storage
from jobs.core.plan.typing_rules import require_numeric
from jobs.core.values.exact_numbers import float_result
from jobs.core.values.json_values import Json
from schemas.types.sql_types import DECIMAL_PRECISION_MAX, Kind, SqlType, decimal, integer_range

# The sum of 10^10 values of this precision fits a DECIMAL(38, s).
DECIMAL_STORAGE_PRECISION_MAX = 28
AVERAGE_SCALE_MIN = 6


@dataclass(frozen=True, slots=True)
class Sum(Accumulator):
    """The sum of integers or decimals."""

    type: SqlType

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

    def describe(self, cells: Sequence[int]) -> dict[str, Json]:
        if self.type.kind is Kind.DECIMAL:
            return {"sum": decimal_json(cells[0], self.type.scale or 0)}
        return {"sum": integer_json(cells[0])}


class FloatSum(Accumulator):
    """The sum of finite floats in units of 2^-1074, and the numbers of NaNs and infinities."""

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
            f"    {finite} += float_to_units({value}) * {weight}",
            f"elif {value} != {value}:",
            f"    {nan} += {weight}",
            f"elif {value} > 0:",
            f"    {inf} += {weight}",
            "else:",
            f"    {neginf} += {weight}",
        ]

    def describe(self, cells: Sequence[int]) -> dict[str, Json]:
        finite, nan, inf, neginf = cells
        total = double_json(float_result(finite, 0, 0, 0))
        return {"sum": total, "nan": nan, "infinity": inf, "-infinity": neginf}


def sum_of(argument: str, sql_type: SqlType) -> Sum | FloatSum:
    """Return the accumulator of a sum of this type."""
    return FloatSum(argument) if sql_type.floating else Sum(argument, sql_type)


def _fit_lines(target: str, exact: str, result: SqlType) -> list[str]:
    """Return code that sets target to a value, or to NULL with a misfit if it does not fit."""
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


def _null_if_empty(target: str, count: str, lines: Sequence[str]) -> list[str]:
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
        lines = [f"{site.target} = float_result({', '.join(total)}, single={single})"]
    else:
        lines = _fit_lines(site.target, total[0], site.aggregate.type)
    return _null_if_empty(site.target, count, lines)


def _average(site: Site) -> list[str]:
    *total, count = site.cells
    target, argument, result = site.target, site.argument, site.aggregate.type
    if argument.floating:
        single = argument.kind is Kind.FLOAT
        lines = [f"{target} = float_result({', '.join(total)}, {count}, single={single})"]
    elif argument.integer:
        lines = _fit_lines(target, f"divide_truncating({total[0]}, {count})", result)
    else:
        shift = 10 ** ((result.scale or 0) - (argument.scale or 0))
        exact = f"divide_half_up({total[0]} * {shift}, {count})"
        lines = _fit_lines(target, exact, result)
    return _null_if_empty(target, count, lines)


def _sum_type(argument: SqlType) -> SqlType:
    require_numeric(argument, "SUM")
    if argument.kind is not Kind.DECIMAL:
        return argument
    return decimal(DECIMAL_PRECISION_MAX, argument.scale or 0)


def _average_type(argument: SqlType) -> SqlType:
    require_numeric(argument, "AVG")
    if argument.kind is not Kind.DECIMAL:
        return argument
    return decimal(DECIMAL_PRECISION_MAX, max(AVERAGE_SCALE_MIN, argument.scale or 0))


FUNCTIONS = (
    Function(
        "SUM",
        accumulators=lambda name, kind: (sum_of(name, kind), Count(name)),
        result=_sum_type,
        value=_sum,
        about="The sum. It has the argument's type; for DECIMAL(p, s) DECIMAL(38, s). A sum that "
        "does not fit is NULL until it fits again. Sums of floats are exact, and rounded once.",
        example="SUM(cnt)",
        example_result=19,
    ),
    Function(
        "AVG",
        accumulators=lambda name, kind: (sum_of(name, kind), Count(name)),
        result=_average_type,
        value=_average,
        about="The mean. For integers it is rounded toward zero, for DECIMAL(p, s) half up to "
        "DECIMAL(38, max(6, s)).",
        example="AVG(cnt)",
        example_result=4,
    ),
)
