"""BOOL_AND and BOOL_OR, from the number of true values and the number of values."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.core.aggregates.count import Count
from jobs.core.aggregates.interfaces import Accumulator, Distinction, Function
from jobs.core.plan.typing_rules import TypeProblem
from jobs.core.values.json_values import Json
from schemas.types.sql_types import BOOLEAN, SqlType


class Trues(Accumulator):
    """The number of true values."""

    counted = "trues"

    def add(self, cells: Sequence[str], value: str, weight: str) -> list[str]:
        return [f"if {value}:", f"    {cells[0]} += {weight}"]

    def describe(self, cells: Sequence[int]) -> dict[str, Json]:
        return {"true": cells[0]}


def all_true(trues: int, count: int) -> bool | None:
    """Return whether no value is false; None without values."""
    if trues <= 0 and count - trues <= 0:
        return None
    return count - trues <= 0


def any_true(trues: int, count: int) -> bool | None:
    """Return whether a value is true; None without values."""
    if trues <= 0 and count - trues <= 0:
        return None
    return trues > 0


RUNTIME = (all_true, any_true)


def _truth_function(
    name: str, word: str, about: str, gives: bool, synonyms: tuple[str, ...]
) -> Function:
    def result(argument: SqlType) -> SqlType:
        if argument != BOOLEAN:
            raise TypeProblem(f"{name} needs a BOOLEAN, this is {argument}", f"{name}(x > 0)")
        return BOOLEAN

    return Function(
        name,
        accumulators=lambda argument, _: (Trues(argument), Count(argument)),
        result=result,
        value=lambda site: [f"{site.target} = {word}({', '.join(site.cells)})"],
        about=about,
        example=f"{name}(sold)",
        example_result=gives,
        synonyms=synonyms,
        distinction=Distinction.SAME,
    )


_AND, _OR = ("EVERY", "LOGICAL_AND"), ("SOME", "LOGICAL_OR")

FUNCTIONS = (
    _truth_function("BOOL_AND", "all_true", "Whether no value is false.", False, _AND),
    _truth_function("BOOL_OR", "any_true", "Whether a value is true.", True, _OR),
)
