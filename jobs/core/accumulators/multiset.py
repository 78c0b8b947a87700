"""Multiset: the values of an argument with their multiplicities, kept outside the cells.

MAX and MIN need it to uncover the next value when the greatest is retracted; multiplicities may
fall below zero when the stream retracts what it never added, and such values count for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.core.accumulators.base import Cell


@dataclass(frozen=True, slots=True)
class Multiset:
    argument: str
    keeps_values: bool = True

    @property
    def cells(self) -> tuple[Cell, ...]:
        return ()

    def add(self, cells: Sequence[str], value: str, weight: str) -> list[str]:
        return []
