"""Accumulators of a group's arguments, and the aggregates over them.

    argument values with weights ──► accumulators (cells of the group, entries of its multiset)
                                              │
                              aggregates (COUNT, SUM, MAX, STRING_AGG, ...): results

Accumulators are Z-linear: a value with weight -1 undoes the value with weight +1, and two deltas
merge by adding their cells. Aggregates over the same argument share its accumulators. Both generate
lines of Python, which jobs.core.fold.program assembles once for each plan.
"""

from jobs.core.aggregates.count import Count
from jobs.core.aggregates.entries import place_of
from jobs.core.aggregates.extremes import Multiset
from jobs.core.aggregates.functions import (
    FUNCTIONS,
    RUNTIME,
    SYNONYMS,
    accumulators_of,
    clock_of_timers,
    is_class,
    read_cost_of,
)
from jobs.core.aggregates.interfaces import (
    Accumulator,
    Cell,
    Constant,
    Distinction,
    EntryAccumulator,
    Function,
    Order,
    ReadCost,
    Site,
    Storage,
)
from jobs.core.aggregates.sum import Sum, sum_of

__all__ = [
    "FUNCTIONS",
    "RUNTIME",
    "SYNONYMS",
    "Accumulator",
    "Cell",
    "Constant",
    "Count",
    "Distinction",
    "EntryAccumulator",
    "Function",
    "Multiset",
    "Order",
    "ReadCost",
    "Site",
    "Storage",
    "Sum",
    "accumulators_of",
    "clock_of_timers",
    "is_class",
    "place_of",
    "read_cost_of",
    "sum_of",
]
