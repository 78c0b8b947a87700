"""Join the rows of one key, to show them: the rule of a join without state and changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobs.core.plan.tree import Join
from jobs.core.rows.projection import RowFailed, compile_row
from jobs.core.values.change import Row

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
