"""What a group remembers of an argument, and what each aggregate makes of it.

    argument values with weights ──► accumulators (cells of the group, entries of its multiset)
                                              │
                              aggregates (COUNT, SUM, MAX, STRING_AGG, ...): results

Accumulators are Z-linear: adding a value with weight -1 undoes adding it with weight +1, and two
deltas merge by adding their cells. Aggregates over the same argument share its accumulators. Both
give lines of Python, which `program` puts together once for each plan.
"""

from jobs.core.aggregates.base import (
    Accumulator,
    Cell,
    Constant,
    Distinction,
    Function,
    Order,
    Reading,
    Settled,
    Site,
    Storage,
)
from jobs.core.aggregates.count import Count
from jobs.core.aggregates.functions import FUNCTIONS, RUNTIME, SYNONYMS, accumulators_of, reading_of
from jobs.core.aggregates.multiset import Multiset
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
    "Function",
    "Multiset",
    "Order",
    "Reading",
    "Settled",
    "Site",
    "Storage",
    "Sum",
    "accumulators_of",
    "reading_of",
    "sum_of",
]
