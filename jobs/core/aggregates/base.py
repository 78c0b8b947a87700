"""The interfaces of accumulators and of the functions over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from jobs.core.plan.tree import Aggregate
from jobs.core.values.json_values import Json
from schemas.types.sql_types import DECIMAL_PRECISION_MAX, SqlType, decimal


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

    def told(self, cells: Sequence[int]) -> dict[str, Json]:
        """The cells by name, for people to read."""
        ...


@runtime_checkable
class Settled(Protocol):
    """An accumulator over the multiset itself: its cells follow from how multiplicities change,
    which only who knows the stored ones can tell."""

    def settle(self, cells: Sequence[str], value: str) -> list[str]:
        """Lines of code for an entry whose multiplicity was `old` and is `new`."""
        ...


class Reading(StrEnum):
    """What a value costs beside the cells, for each group that has changed."""

    CELLS = "cells"  # nothing
    EXTREME = "extreme"  # one entry, and only where the one shown so far has gone
    FEW = "few"  # the first entries from one end
    RANK = "rank"  # the entries between a rank and where it was before
    COMMONEST = "commonest"  # every entry, and only where the one shown so far has become rarer
    ALL = "all"  # every entry

    @property
    def cost(self) -> str:
        """What is kept of each group, and read of it for each change."""
        return _COSTS[self]

    @property
    def looks_into_multiset(self) -> bool:
        return self not in (Reading.CELLS, Reading.EXTREME)


_COSTS = {
    Reading.CELLS: "cells only: nothing is read for a result",
    Reading.EXTREME: "a multiset, of which one entry is read, when the value shown has gone",
    Reading.FEW: "a multiset, of which the first entries from one end are read",
    Reading.RANK: "a multiset, in which the rank is looked for from where it was before",
    Reading.COMMONEST: (
        "a multiset, of which every entry is read, but only when the value shown has become rarer"
    ),
    Reading.ALL: "a multiset, of which every entry is read: linear in a group's distinct values",
}


class Order(StrEnum):
    """Where an aggregate takes an order from."""

    NONE = "none"
    OPTIONAL = "ORDER BY, if wanted"
    NEEDED = "ORDER BY"
    ARGUMENT = "second argument"
    VALUE = "WITHIN GROUP (ORDER BY x)"  # which is the argument itself


class Constant(StrEnum):
    """A constant in a call, behind the argument."""

    SEPARATOR = "separator"
    COUNT = "k"
    FRACTION = "p"


class Distinction(StrEnum):
    """What DISTINCT is to a function."""

    MATTERS = "matters"
    SAME = "same"  # it may be said, and changes nothing
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Site:
    """One aggregate where generated code makes its value: the variable to set, the variables of
    its cells, and the one that has the present values of its argument (core.present)."""

    target: str
    cells: Sequence[str]
    present: str
    aggregate: Aggregate
    argument: SqlType


@dataclass(frozen=True, slots=True)
class Function:
    """One aggregate function.

    `needs(argument name, type)` gives its accumulators; `result(argument type)` the type of its
    values, or a TypeProblem; `value(site)` the lines that make one. An `extreme` function takes
    the multiset's greatest or least value, others may go through its entries.
    """

    name: str
    needs: Callable[[str, SqlType], tuple[Accumulator, ...]]
    result: Callable[[SqlType], SqlType]
    value: Callable[[Site], list[str]]
    about: str  # for the documentation, as are the next two
    example: str
    gives: Any
    synonyms: tuple[str, ...] = ()
    extreme: str | None = None  # "largest" or "smallest"
    reading: Reading = Reading.CELLS
    order: Order = Order.NONE
    constant: Constant | None = None
    distinction: Distinction = Distinction.MATTERS
    keeps_nulls: bool = False  # unless IGNORE NULLS is said
