"""MIN, MAX and ANY_VALUE, over the multiset: the values of an argument with their multiplicities,
kept outside the cells.

MAX and MIN need it to uncover the next value when the greatest is retracted; multiplicities may
fall below zero when the stream retracts what it never added, and such values count for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.core.aggregates.base import Cell, Distinction, Function, Reading, Site
from jobs.core.values.json_values import Json
from schemas.types.sql_types import SqlType


@dataclass(frozen=True, slots=True)
class Multiset:
    argument: str
    keeps_values: bool = True

    @property
    def cells(self) -> tuple[Cell, ...]:
        return ()

    def add(self, cells: Sequence[str], value: str, weight: str) -> list[str]:
        return []

    def told(self, cells: Sequence[int]) -> dict[str, Json]:
        return {}


def multiset_of(name: str, sql_type: SqlType) -> tuple[Multiset]:
    return (Multiset(name),)


def same_type(argument: SqlType) -> SqlType:
    return argument


def _shown(site: Site) -> list[str]:
    raise AssertionError("an extreme is handed to the result, not made by it")


def _extreme(
    name: str, extreme: str, about: str, gives: int, synonyms: tuple[str, ...] = ()
) -> Function:
    return Function(
        name,
        needs=multiset_of,
        result=same_type,
        value=_shown,
        about=about,
        example=f"{name}(cnt)",
        gives=gives,
        synonyms=synonyms,
        extreme=extreme,
        reading=Reading.EXTREME,
        distinction=Distinction.SAME,
    )


FUNCTIONS = (
    _extreme("MIN", "smallest", "The least value; NaN is the greatest of all.", 3),
    _extreme("MAX", "largest", "The greatest value; NaN is the greatest of all.", 8),
    _extreme(
        "ANY_VALUE",
        "smallest",
        "A value that is there: always the least one, so that the same rows give the same result "
        "however they were cut into bundles.",
        3,
    ),
)
