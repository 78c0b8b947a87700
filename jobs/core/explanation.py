"""Explanation: what a group remembers and what an epoch has read, readable; for the command line
and for the service alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.core.accumulators import Count, Sum
from jobs.core.accumulators.distinct import Distinct, Present
from jobs.core.accumulators.numbers import FLOAT_UNITS, INFINITY, float_total
from jobs.core.accumulators.spread import FloatSquares, Squares
from jobs.core.accumulators.sum import FloatSum
from jobs.core.accumulators.truth import Trues
from jobs.core.values import render
from schemas.epoch import EpochRow, Offsets
from schemas.types import DECIMAL_PRECISION_MAX, DOUBLE, Kind, decimal

JSON_INTEGER_MAX = 2**53 - 1  # beyond it readers of JSON round; such numbers are text

# By topic and partition the offsets [from, to).
Read = dict[str, dict[str, list[int]]]


def numbers(accumulator: object, cells: Sequence[int]) -> dict[str, Any]:
    """The numbers of one accumulator."""
    if isinstance(accumulator, Count):
        return {"count": cells[0]}
    if isinstance(accumulator, Distinct):
        found = numbers(accumulator.inner, cells)
        return {f"distinct_{name}": value for name, value in found.items()}
    if isinstance(accumulator, Present):
        return {"present": cells[0]}
    if isinstance(accumulator, Trues):
        return {"true": cells[0]}
    if isinstance(accumulator, FloatSquares):
        return {"sum_of_squares": render(_squares(cells[0]), DOUBLE)}
    if isinstance(accumulator, Squares):
        scale = 2 * (accumulator.type.scale or 0)
        return {"sum_of_squares": _whole(cells[0]) if not scale else _decimal_text(cells[0], scale)}
    if isinstance(accumulator, FloatSum):
        finite, nan, inf, neginf = cells
        total = render(float_total(finite, 0, 0, 0), DOUBLE)
        return {"sum": total, "nan": nan, "infinity": inf, "-infinity": neginf}
    if isinstance(accumulator, Sum):
        if accumulator.type.kind is Kind.DECIMAL:
            return {"sum": _decimal_text(cells[0], accumulator.type.scale or 0)}
        return {"sum": _whole(cells[0])}
    return {}


def _whole(number: int) -> int | str:
    return number if abs(number) <= JSON_INTEGER_MAX else str(number)


def _decimal_text(units: int, scale: int) -> Any:
    return render(units, decimal(DECIMAL_PRECISION_MAX, scale))


def _squares(units: int) -> float:
    """A sum of squares of floats, in units of 2^-2148, as the nearest float."""
    try:
        return units / (FLOAT_UNITS * FLOAT_UNITS)
    except OverflowError:
        return INFINITY


def offsets_read(rows: Mapping[int, EpochRow], epoch: int) -> Read | None:
    """The offsets that an epoch read; None where the epoch is not known any more, or read nothing
    of its own (a rewind)."""
    row, before = rows.get(epoch), rows.get(epoch - 1)
    if row is None or before is None or row.kind == "rewind":
        return None
    return ranges_read(before.offsets, row.offsets)


def ranges_read(before: Offsets, after: Offsets) -> Read:
    """What lies between two sets of offsets."""
    found: Read = {}
    for topic, partitions in after.items():
        for partition, end in partitions.items():
            start = before.get(topic, {}).get(partition, 0)
            if start != end:
                found.setdefault(topic, {})[partition] = [start, end]
    return found
