"""Pair rows of two sides: by the numbers of their join keys, or all rows of one key.

numbers of the left rows    0 0 2     ┌─► left   0 0 1 1
numbers of the right rows   0 0 1   ──┴─► right  0 1 0 1
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from jobs.core.plan.tree import Join
from jobs.core.rows.consolidate import Booleans, Integers
from jobs.core.rows.projection import RowFailed, compile_row
from jobs.core.values.change import Row


def pair_up(left: Integers, right: Integers, size: int) -> Iterator[tuple[Integers, Integers]]:
    """Yield the indexes of all pairs with equal numbers, at most `size` pairs at a time."""
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    starts = np.searchsorted(ordered, left, "left")
    ends = np.searchsorted(ordered, left, "right")
    for of, at in expand(starts, ends, size):
        yield of, order[at]


def expand(starts: Integers, ends: Integers, size: int) -> Iterator[tuple[Integers, Integers]]:
    """Yield which range each position is in, and the positions, at most `size` at a time."""
    counts = ends - starts
    after: Integers = np.cumsum(counts)  # positions in a range and all before it
    total = int(after[-1]) if len(after) else 0
    for first in range(0, total, size):
        flat: Integers = np.arange(first, min(first + size, total))
        of = np.searchsorted(after, flat, "right")
        yield of, ends[of] - (after[of] - flat)


def cut(sizes: Integers, size_max: int) -> Iterator[slice]:
    """Yield parts whose sizes add up to at most `size_max`, or that have one of these only."""
    ends, start, before = np.cumsum(sizes), 0, 0
    while start < len(sizes):
        end = max(start + 1, int(np.searchsorted(ends, before + size_max, "right")))
        yield slice(start, end)
        start, before = end, int(ends[end - 1])


def find_alone(before: Integers, changes: Integers, alone: bool) -> tuple[Booleans, Booleans]:
    """Return for which keys the rows of a side are rows of the join by themselves: before the
    changes of the other side's sums of weights, and after them.

    With `alone` they are where the other side has rows, else where it has none."""
    return (before != 0) == alone, (before + changes != 0) == alone


Weights = Mapping[Row, int]


def join_rows(join: Join, left: Weights, right: Weights) -> Iterator[tuple[Row, int]]:
    """Yield the joined rows of both sides, with the inputs of the join as columns.

    A pair on which the condition fails does not match."""
    width = len(join.inputs)
    if join.kind not in ("SEMI", "ANTI"):
        for one, weight in left.items():
            for other, times in right.items():
                if _matches(join, one + other):
                    yield one + other, weight * times
    if (join.kind == "SEMI") if sum(right.values()) else join.keeps_left:
        for row, weight in left.items():
            yield row + (None,) * (width - len(row)), weight
    if not sum(left.values()) and join.keeps_right:
        for row, weight in right.items():
            yield (None,) * (width - len(row)) + row, weight


def _matches(join: Join, row: Row) -> bool:
    if join.residual is None:
        return True
    try:
        return compile_row(join.residual, join.inputs).evaluate(row) is True
    except RowFailed:
        return False
