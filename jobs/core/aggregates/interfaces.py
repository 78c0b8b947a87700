"""The interfaces of accumulators and of the functions over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol, runtime_checkable

from jobs.core.plan.tree import Aggregate
from jobs.core.values.json_values import Json
from schemas.types.sql_types import DECIMAL_PRECISION_MAX, SqlType, decimal


class Storage(StrEnum):
    """How Delta stores a cell, which is a Python int in memory."""

    BIGINT = "bigint"
    DECIMAL = "decimal"  # DECIMAL(38, scale), which any engine can read
    TEXT = "text"  # the digits of an integer that may have more than 38


@dataclass(frozen=True, slots=True)
class Cell:
    """One number of a group's accumulator, and the column that stores it."""

    name: str
    storage: Storage
    scale: int = 0

    @property
    def decimal_type(self) -> SqlType:
        """The type of the column of a DECIMAL cell."""
        return decimal(DECIMAL_PRECISION_MAX, self.scale)


@dataclass(frozen=True, slots=True)
class Accumulator:
    """The state of one argument in a group; here one that counts in a cell.

    `cells` are sums; they start at 0, and two deltas merge by addition. An accumulator may instead
    (or also) need the argument's values in the multiset.
    """

    argument: str
    counted: ClassVar[str] = ""  # as the column of the cell says it
    keeps_values: ClassVar[bool] = False

    @property
    def cells(self) -> tuple[Cell, ...]:
        return (Cell(f"acc_{self.counted}_{self.argument}", Storage.BIGINT),)

    def add(self, cells: Sequence[str], value: str, weight: str) -> list[str]:
        """Return code that adds the non-NULL `value` with `weight` to the variables `cells`."""
        return []

    def describe(self, cells: Sequence[int]) -> dict[str, Json]:
        """Return the cells by name, for people."""
        return {self.counted: cells[0]}


@runtime_checkable
class EntryAccumulator(Protocol):
    """An accumulator whose cells follow from changes of multiplicities.

    So it needs the stored multiplicities of the changed values."""

    def add_entry(self, cells: Sequence[str], value: str) -> list[str]:
        """Return code for an entry whose multiplicity changes from `old` to `new`."""
        ...


class ReadCost(StrEnum):
    """What computing a value reads besides the cells, for each changed group."""

    CELLS = "cells"  # nothing
    EXTREME = "extreme"  # one entry, only if the current result was retracted
    FEW = "few"  # the first entries from one end
    RANK = "rank"  # the entries between a rank and its previous position
    COMMONEST = "commonest"  # every entry, only if the current result became less frequent
    ALL = "all"  # every entry

    @property
    def cost(self) -> str:
        """A text: what the state keeps of each group, and what each change reads."""
        return _COSTS[self]

    @property
    def reads_multiset(self) -> bool:
        """Whether computing a value may read several entries of the multiset."""
        return self not in (ReadCost.CELLS, ReadCost.EXTREME)


_COSTS = {
    ReadCost.CELLS: "cells only; a result reads nothing else",
    ReadCost.EXTREME: "a multiset; a result reads one entry, if its value was retracted",
    ReadCost.FEW: "a multiset; a result reads the first entries from one end",
    ReadCost.RANK: "a multiset; a result searches its rank from the previous position",
    ReadCost.COMMONEST: (
        "a multiset; a result reads every entry, but only if its value became less frequent"
    ),
    ReadCost.ALL: "a multiset; a result reads every entry, linear in a group's distinct values",
}


class Order(StrEnum):
    """Which part of its call orders an aggregate."""

    NONE = "none"
    OPTIONAL = "optional ORDER BY"
    NEEDED = "ORDER BY"
    ARGUMENT = "second argument"
    VALUE = "WITHIN GROUP (ORDER BY x)"  # orders by the argument itself


class Constant(StrEnum):
    """A literal in a call, after the argument."""

    SEPARATOR = "separator"
    COUNT = "k"
    FRACTION = "p"
    ON_NULL = "NULL ON NULL"


class Distinction(StrEnum):
    """The effect of DISTINCT on a function."""

    MATTERS = "matters"
    SAME = "same"  # allowed, without effect
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Site:
    """The variables of generated code that computes the value of an aggregate.

    `target` gets the value, `cells` are its cells, `present` has its argument's PresentValues."""

    target: str
    cells: Sequence[str]
    present: str
    aggregate: Aggregate
    argument: SqlType


@dataclass(frozen=True, slots=True)
class Function:
    """One aggregate function.

    `accumulators(argument name, type)` returns its accumulators. `result(argument type)` returns
    the type of its values, or raises TypeProblem. `value(site)` returns the code of a value. An
    `extreme` function needs only the multiset's greatest or least value.
    """

    name: str
    accumulators: Callable[[str, SqlType], tuple[Accumulator, ...]]
    result: Callable[[SqlType], SqlType]
    value: Callable[[Site], list[str]]
    about: str  # for the documentation, like the next two
    example: str
    example_result: Any
    synonyms: tuple[str, ...] = ()
    extreme: str | None = None  # "largest" or "smallest"
    read_cost: ReadCost = ReadCost.CELLS
    order: Order = Order.NONE
    constant: Constant | None = None
    distinction: Distinction = Distinction.MATTERS
    keeps_nulls: bool = False  # without IGNORE NULLS
    may_keep_nulls: bool = False  # with RESPECT NULLS
    is_of_pairs: bool = False  # takes two numbers, y and x, as a ROW; NULL if one is
