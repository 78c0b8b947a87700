"""Explanation: what a group remembers and what an epoch has read, readable; for the command line
and for the service alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.core.accumulators import Count, Sum
from jobs.core.accumulators.numbers import float_total
from jobs.core.accumulators.sum import FloatSum
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
    if isinstance(accumulator, FloatSum):
        finite, nan, inf, neginf = cells
        total = render(float_total(finite, 0, 0, 0), DOUBLE)
        return {"sum": total, "nan": nan, "infinity": inf, "-infinity": neginf}
    if isinstance(accumulator, Sum):
        total = render(cells[0], decimal(DECIMAL_PRECISION_MAX, accumulator.type.scale or 0))
        if accumulator.type.kind is Kind.DECIMAL or abs(cells[0]) > JSON_INTEGER_MAX:
            return {"sum": total}
        return {"sum": cells[0]}
    return {}


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
