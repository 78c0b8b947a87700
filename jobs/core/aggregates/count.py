"""COUNT: the number of rows, or of non-NULL values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.core.aggregates.interfaces import Cell, Function, Storage
from jobs.core.values.json_values import Json
from schemas.types.sql_types import BIGINT


@dataclass(frozen=True, slots=True)
class Count:
    """The number of non-NULL values."""

    argument: str
    keeps_values: bool = False

    @property
    def cells(self) -> tuple[Cell, ...]:
        return (Cell(f"acc_count_{self.argument}", Storage.BIGINT),)

    def add(self, cells: Sequence[str], value: str, weight: str) -> list[str]:
        return [f"{cells[0]} += {weight}"]

    def describe(self, cells: Sequence[int]) -> dict[str, Json]:
        return {"count": cells[0]}


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
