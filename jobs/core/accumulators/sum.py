"""Sum: exact, whatever the type.

Integers and decimals (integers of 10^-s) are Python integers. Binary floats are integers too,
of 2^-1074, the smallest float there is: so the sum of any floats is exact, order does not matter
and a retraction leaves nothing behind. NaN and the infinities are counted beside it, so that they
leave with their row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.core.accumulators.base import Cell, Storage
from schemas.types import Kind, SqlType

# A DECIMAL(38, s) has room for 10^10 values of this precision.
DECIMAL_STORAGE_PRECISION_MAX = 28


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


def sum_of(argument: str, sql_type: SqlType) -> Sum | FloatSum:
    return FloatSum(argument) if sql_type.floating else Sum(argument, sql_type)
