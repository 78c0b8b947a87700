"""MIN, MAX and ANY_VALUE: an extreme of a multiset, with the values of an argument.

MAX and MIN need the multiset for the next value if the current one is retracted. A multiplicity is
negative if the stream retracts a value that it never added; such a value does not count.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobs.core.aggregates.interfaces import Accumulator, Cell, Distinction, Function, ReadCost, Site
from jobs.core.values.json_values import Json
from schemas.types.sql_types import SqlType


class Multiset(Accumulator):
    """Keeps the values of an argument in the multiset; it has no cells."""

    keeps_values = True

    @property
    def cells(self) -> tuple[Cell, ...]:
        return ()

    def describe(self, cells: Sequence[int]) -> dict[str, Json]:
        return {}


def multiset_of(name: str, sql_type: SqlType) -> tuple[Multiset]:
    """Return the accumulators of a function that needs only the multiset of its argument."""
    return (Multiset(name),)


def same_type(argument: SqlType) -> SqlType:
    """Return the type of a result that is one of the values."""
    return argument


def _no_value_lines(site: Site) -> list[str]:
    raise AssertionError("the fold passes extremes to the result; no code computes them")


def _extreme_function(name: str, extreme: str, about: str, gives: int) -> Function:
    return Function(
        name,
        accumulators=multiset_of,
        result=same_type,
        value=_no_value_lines,
        about=about,
        example=f"{name}(cnt)",
        example_result=gives,
        extreme=extreme,
        read_cost=ReadCost.EXTREME,
        distinction=Distinction.SAME,
    )


FUNCTIONS = (
    _extreme_function("MIN", "smallest", "The smallest value; NaN is the greatest.", 3),
    _extreme_function("MAX", "largest", "The greatest value; NaN is the greatest.", 8),
    _extreme_function(
        "ANY_VALUE",
        "smallest",
        "One of the values: always the smallest one, so that the result does not depend on the "
        "bundles.",
        3,
    ),
)
