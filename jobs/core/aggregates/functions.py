"""The table of the aggregate functions. A new one is a file beside this one, and a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jobs.core.aggregates import count, edges, entries, lists, multiset, ranks, spread, truth
from jobs.core.aggregates import sum as sums
from jobs.core.aggregates.base import Accumulator, Function, Reading
from jobs.core.aggregates.distinct import distinct_of
from jobs.core.plan.tree import Aggregate
from jobs.core.values import exact_numbers as numbers
from schemas.types.sql_types import SqlType

FAMILIES = (count, sums, multiset, spread, truth, edges, lists, ranks)
FUNCTIONS: dict[str, Function] = {
    function.name: function for family in FAMILIES for function in family.FUNCTIONS
}
SYNONYMS: dict[str, str] = {
    word: function.name for function in FUNCTIONS.values() for word in function.synonyms
}

# What generated code may call.
_CALLED: tuple[Callable[..., Any], ...] = (
    *spread.RUNTIME,
    *truth.RUNTIME,
    *entries.RUNTIME,
    *lists.RUNTIME,
    *ranks.RUNTIME,
)
RUNTIME: dict[str, Any] = {
    **{name: known for name, known in vars(numbers).items() if not name.startswith("_")},
    **{function.__name__: function for function in _CALLED},
}


def reading_of(aggregate: Aggregate, argument: SqlType) -> Reading:
    """What a value of this very aggregate costs, which may be more than its function's."""
    reading = FUNCTIONS[aggregate.function].reading
    sorts = reading is Reading.FEW and entries.mixed(aggregate, argument)
    counts = reading is Reading.RANK and aggregate.distinct  # marks count equal values as many
    return Reading.ALL if sorts or counts else reading


def accumulators_of(
    function: Function, argument: str, sql_type: SqlType, *, distinct: bool
) -> tuple[Accumulator, ...]:
    """What a call of a function has remembered of its argument."""
    needed = function.needs(argument, sql_type)
    return tuple(map(distinct_of, needed)) if distinct else needed
