"""Accumulators over the distinct values of a multiset.

A value is present while its multiplicity is positive. The cells change when a value appears or
disappears, which the fold notices when it updates multiplicities. Reading the cells costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobs.core.aggregates.count import Count
from jobs.core.aggregates.interfaces import Accumulator, Cell, EntryAccumulator
from jobs.core.values.json_values import Json


@dataclass(frozen=True, slots=True)
class Distinct(Accumulator):
    """Wraps an accumulator so that it adds each distinct value once."""

    inner: Accumulator
    keeps_values = True

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(
            replace(cell, name=cell.name.replace("acc_", "acc_distinct_", 1))
            for cell in self.inner.cells
        )

    def add_entry(self, cells: Sequence[str], value: str) -> list[str]:
        lines = self.inner.add(cells, value, "appeared")
        return [
            "appeared = (new > 0) - (old > 0)",
            "if appeared:",
            *(f"    {line}" for line in lines),
        ]

    def describe(self, cells: Sequence[int]) -> dict[str, Json]:
        return {f"distinct_{name}": number for name, number in self.inner.describe(cells).items()}


class Present(Accumulator):
    """The number of present values; a negative multiplicity counts as 0."""

    counted, keeps_values = "present", True

    def add_entry(self, cells: Sequence[str], value: str) -> list[str]:
        return [f"{cells[0]} += (new if new > 0 else 0) - (old if old > 0 else 0)"]


def distinct_of(accumulator: Accumulator) -> Accumulator:
    """Return the accumulator over distinct values only."""
    if isinstance(accumulator, Present):
        return Distinct(accumulator.argument, Count(accumulator.argument))
    if isinstance(accumulator, EntryAccumulator) or not accumulator.cells:
        return accumulator
    return Distinct(accumulator.argument, accumulator)
