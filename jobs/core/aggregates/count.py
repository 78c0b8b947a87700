"""COUNT: the number of rows, or of non-NULL values."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.core.aggregates.interfaces import Accumulator, Function
from schemas.types.sql_types import BIGINT


class Count(Accumulator):
    """The number of non-NULL values."""

    counted = "count"

    def add(self, cells: Sequence[str], value: str, weight: str) -> list[str]:
        return [f"{cells[0]} += {weight}"]


FUNCTIONS = (
    Function(
        "COUNT",
        accumulators=lambda name, _: (Count(name),),
        result=lambda _: BIGINT,
        value=lambda site: [f"{site.target} = {site.cells[0]}"],
        about="The number of rows (`COUNT(*)`), or of rows with a value. DISTINCT allows several "
        "arguments, and counts rows in which none of them is NULL.",
        example="COUNT(DISTINCT cnt)",
        example_result=3,
    ),
)
