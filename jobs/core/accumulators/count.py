"""Count: how many values of an argument are not NULL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.core.accumulators.base import Cell, Storage


@dataclass(frozen=True, slots=True)
class Count:
    argument: str
    keeps_values: bool = False

    @property
    def cells(self) -> tuple[Cell, ...]:
        return (Cell(f"acc_count_{self.argument}", Storage.BIGINT),)

    def add(self, cells: Sequence[str], value: str, weight: str) -> list[str]:
        return [f"{cells[0]} += {weight}"]
