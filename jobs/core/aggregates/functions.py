"""The table of all aggregate functions. To add one, add a module here and to FAMILIES."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jobs.core.aggregates import (
    bits,
    booleans,
    count,
    entries,
    extremes,
    first_last,
    json_lists,
    lists,
    operator_class,
    pairs,
    ranks,
    shape,
    variance,
)
from jobs.core.aggregates import sum as sums
from jobs.core.aggregates.distinct import distinct_of
from jobs.core.aggregates.interfaces import Accumulator, Function, ReadCost
from jobs.core.plan.tree import Aggregate, Plan
from jobs.core.values import exact_numbers as numbers
from schemas.types.sql_types import SqlType

FAMILIES = (
    *(count, sums, extremes, variance, shape, pairs, booleans, bits),
    *(first_last, lists, json_lists, ranks),
)


class _Functions(dict[str, Function]):
    """The functions by name; any other name in a plan is that of an operator's class."""

    def __missing__(self, name: str) -> Function:
        return operator_class.FUNCTION


FUNCTIONS = _Functions(
    {function.name: function for family in FAMILIES for function in family.FUNCTIONS}
)
SYNONYMS: dict[str, str] = {
    word: function.name for function in FUNCTIONS.values() for word in function.synonyms
}

# The functions that generated code may call.
_CALLABLE: tuple[Callable[..., Any], ...] = (
    *variance.RUNTIME,
    *shape.RUNTIME,
    *pairs.RUNTIME,
    *bits.RUNTIME,
    *booleans.RUNTIME,
    *entries.RUNTIME,
    *lists.RUNTIME,
    *json_lists.RUNTIME,
    *ranks.RUNTIME,
    *operator_class.RUNTIME,
)
RUNTIME: dict[str, object] = {
    **{name: known for name, known in vars(numbers).items() if not name.startswith("_")},
    **{function.__name__: function for function in _CALLABLE},
}


def is_class(aggregate: Aggregate) -> bool:
    """Return whether a call is of an operator's class."""
    return aggregate.function not in FUNCTIONS


def clock_of_timers(plan: Plan) -> str | None:
    """Return the clock of the plan's classes with timers, so that time alone changes results."""
    named = {each.parameters[2] for each in plan.aggregates if is_class(each)} - {""}
    return ("event" if "timers" in named else "processing") if named else None


def read_cost_of(aggregate: Aggregate, argument: SqlType) -> ReadCost:
    """Return the read cost of this aggregate, which may exceed the cost of its function."""
    cost = FUNCTIONS[aggregate.function].read_cost
    sorts = cost is ReadCost.FEW and entries.needs_sorting(aggregate, argument)
    counts = cost is ReadCost.RANK and aggregate.distinct  # ranks are known with duplicates only
    return ReadCost.ALL if sorts or counts else cost


def accumulators_of(
    function: Function, argument: str, sql_type: SqlType, *, distinct: bool
) -> tuple[Accumulator, ...]:
    """Return the accumulators of an argument that a call of the function needs."""
    accumulators = function.accumulators(argument, sql_type)
    return tuple(map(distinct_of, accumulators)) if distinct else accumulators
