"""The aggregate functions: which accumulators each needs, and the code of its value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobs.core.accumulators.base import Accumulator
from jobs.core.accumulators.count import Count
from jobs.core.accumulators.multiset import Multiset
from jobs.core.accumulators.sum import sum_of
from schemas.types import DECIMAL_PRECISION_MAX, Kind, SqlType, integer_range


@dataclass(frozen=True, slots=True)
class Function:
    """One aggregate function.

    `needs(argument name, type)` gives its accumulators; `value(target, cells, argument type,
    result type)` the lines that set the variable `target` from the variables of their cells. An
    `extreme` function reads the multiset's greatest or least value instead.
    """

    name: str
    needs: Callable[[str, SqlType], tuple[Accumulator, ...]]
    value: Callable[[str, Sequence[str], SqlType, SqlType], list[str]]
    extreme: str | None = None  # "largest" or "smallest"


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


def _count(target: str, cells: Sequence[str], argument: SqlType, result: SqlType) -> list[str]:
    return [f"{target} = {cells[0]}"]


def _sum(target: str, cells: Sequence[str], argument: SqlType, result: SqlType) -> list[str]:
    *total, count = cells
    if argument.floating:
        single = argument.kind is Kind.FLOAT
        lines = [f"{target} = float_total({', '.join(total)}, single={single})"]
    else:
        lines = _fitted(target, total[0], result)
    return _unless_empty(target, count, lines)


def _average(target: str, cells: Sequence[str], argument: SqlType, result: SqlType) -> list[str]:
    *total, count = cells
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


def _extreme(target: str, cells: Sequence[str], argument: SqlType, result: SqlType) -> list[str]:
    return []


FUNCTIONS = {
    function.name: function
    for function in (
        Function("COUNT", lambda name, _: (Count(name),), _count),
        Function("SUM", lambda name, kind: (sum_of(name, kind), Count(name)), _sum),
        Function("AVG", lambda name, kind: (sum_of(name, kind), Count(name)), _average),
        Function("MAX", lambda name, _: (Multiset(name),), _extreme, extreme="largest"),
        Function("MIN", lambda name, _: (Multiset(name),), _extreme, extreme="smallest"),
    )
}
