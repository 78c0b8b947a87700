"""Distinct: an accumulator that takes each value of the multiset once.

A value is there while its multiplicity is positive. So the cells change when one comes or goes,
which is where the stored multiplicities are known, and reading them costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobs.core.aggregates.base import Accumulator, Cell, Settled, Storage
from jobs.core.aggregates.count import Count
from jobs.core.values.json_values import Json


@dataclass(frozen=True, slots=True)
class Distinct:
    """Another accumulator, over the distinct values."""

    inner: Accumulator
    keeps_values: bool = True

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(
            replace(cell, name=cell.name.replace("acc_", "acc_distinct_", 1))
            for cell in self.inner.cells
        )

    def add(self, cells: Sequence[str], value: str, weight: str) -> list[str]:
        return []

    def settle(self, cells: Sequence[str], value: str) -> list[str]:
        lines = self.inner.add(cells, value, "appeared")
        return [
            "appeared = (new > 0) - (old > 0)",
            "if appeared:",
            *(f"    {line}" for line in lines),
        ]

    def told(self, cells: Sequence[int]) -> dict[str, Json]:
        return {f"distinct_{name}": number for name, number in self.inner.told(cells).items()}


@dataclass(frozen=True, slots=True)
class Present:
    """How many values there are, without those that were taken away more often than given."""

    argument: str
    keeps_values: bool = True

    @property
    def cells(self) -> tuple[Cell, ...]:
        return (Cell(f"acc_present_{self.argument}", Storage.BIGINT),)

    def add(self, cells: Sequence[str], value: str, weight: str) -> list[str]:
        return []

    def settle(self, cells: Sequence[str], value: str) -> list[str]:
        return [f"{cells[0]} += (new if new > 0 else 0) - (old if old > 0 else 0)"]

    def told(self, cells: Sequence[int]) -> dict[str, Json]:
        return {"present": cells[0]}


def distinct_of(accumulator: Accumulator) -> Accumulator:
    """What remembers of distinct values what the accumulator remembers of all."""
    if isinstance(accumulator, Present):
        return Distinct(Count(accumulator.argument))
    if isinstance(accumulator, Settled) or not accumulator.cells:
        return accumulator
    return Distinct(accumulator)
