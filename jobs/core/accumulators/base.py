"""The interface of accumulators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from schemas.types import DECIMAL_PRECISION_MAX, SqlType, decimal


class Storage(StrEnum):
    """How a cell, always a Python int in memory, is kept in Delta."""

    BIGINT = "bigint"
    DECIMAL = "decimal"  # DECIMAL(38, scale), readable by any engine as the number it is
    TEXT = "text"  # the digits of an integer that may outgrow 38 of them


@dataclass(frozen=True, slots=True)
class Cell:
    """One number of a group's accumulator, and the column that holds it."""

    name: str
    storage: Storage
    scale: int = 0

    @property
    def decimal_type(self) -> SqlType:
        return decimal(DECIMAL_PRECISION_MAX, self.scale)


class Accumulator(Protocol):
    """What a group remembers of one argument.

    `cells` are numbers that add up; they begin at 0 and two deltas merge by addition. An
    accumulator may instead (or also) keep the argument's values in the multiset.
    """

    @property
    def cells(self) -> tuple[Cell, ...]: ...

    @property
    def keeps_values(self) -> bool: ...

    def add(self, cells: Sequence[str], value: str, weight: str) -> list[str]:
        """Lines of code that add the non-NULL `value` with `weight` to the variables `cells`."""
        ...
