"""BIT_AND, BIT_OR and BIT_XOR: from the number of values that have each bit.

    5 = 101 ─► one cell of 64-bit counters: ... 0 │ 1 │ 0 │ 1      the sign of a number is a bit too

Adding a value adds 1 to each of its counters at once, and a retraction takes it away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.core.aggregates.count import Count
from jobs.core.aggregates.interfaces import Accumulator, Cell, Distinction, Function, Site, Storage
from jobs.core.plan.typing_rules import TypeProblem
from jobs.core.values.json_values import Json
from schemas.types.sql_types import INTEGER_BITS, SqlType

COUNTER_BITS = 64
_HALF = 1 << (COUNTER_BITS - 1)
_DIGITS = {digit: digit.rjust(COUNTER_BITS // 4, "0") for digit in "01"}
_SPREAD = str.maketrans(_DIGITS)


@dataclass(frozen=True, slots=True)
class BitCounts(Accumulator):
    """The number of values with each bit, as one number."""

    type: SqlType

    @property
    def cells(self) -> tuple[Cell, ...]:
        return (Cell(f"acc_bits_{self.argument}", Storage.TEXT),)

    def add(self, cells: Sequence[str], value: str, weight: str) -> list[str]:
        return [f"{cells[0]} += spread_bits({value}, {INTEGER_BITS[self.type.kind]}) * {weight}"]

    def describe(self, cells: Sequence[int]) -> dict[str, Json]:
        counts = _split_counts(cells[0], INTEGER_BITS[self.type.kind])
        return {"bits": {str(bit): count for bit, count in enumerate(counts) if count}}


def spread_bits(value: int, width: int) -> int:
    """Return a number of `width` bits with a counter, 0 or 1, for each bit."""
    return int(f"{value & ((1 << width) - 1):b}".translate(_SPREAD), 16)


def _split_counts(cell: int, width: int) -> list[int]:
    """Return the counters; one may be negative, if more was retracted than added."""
    raised = cell + _HALF * (((1 << COUNTER_BITS * width) - 1) // ((1 << COUNTER_BITS) - 1))
    mask = (1 << COUNTER_BITS) - 1
    return [(raised >> COUNTER_BITS * bit & mask) - _HALF for bit in range(width)]


def combine_bits(operation: str, cell: int, count: int, width: int) -> int | None:
    """Return AND, OR or XOR of all values; None without values."""
    if count <= 0:
        return None
    counts = _split_counts(cell, width)
    if operation == "AND":
        found = [each >= count for each in counts]
    elif operation == "OR":
        found = [each > 0 for each in counts]
    else:
        found = [each % 2 == 1 for each in counts]
    number = sum(1 << bit for bit, is_set in enumerate(found) if is_set)
    return number - (1 << width) if found[-1] else number


RUNTIME = (spread_bits, combine_bits)


def _bit_function(operation: str, about: str, gives: int, distinction: Distinction) -> Function:
    name = f"BIT_{operation}"

    def value(site: Site) -> list[str]:
        width = INTEGER_BITS[site.argument.kind]
        call = f"combine_bits({operation!r}, {', '.join(site.cells)}, {width})"
        return [f"{site.target} = {call}"]

    def result(argument: SqlType) -> SqlType:
        if not argument.integer:
            raise TypeProblem(f"{name} needs whole numbers, this is {argument}", "CAST(x AS INT)")
        return argument

    return Function(
        name,
        accumulators=lambda argument, kind: (BitCounts(argument, kind), Count(argument)),
        result=result,
        value=value,
        about=about,
        example=f"{name}(cnt)",
        example_result=gives,
        distinction=distinction,
    )


FUNCTIONS = (
    _bit_function("AND", "The bits that all values have.", 0, Distinction.SAME),
    _bit_function("OR", "The bits that a value has.", 15, Distinction.SAME),
    _bit_function("XOR", "The bits that an odd number of values has.", 13, Distinction.MATTERS),
)
