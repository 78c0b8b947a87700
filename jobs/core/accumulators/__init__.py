"""What a group remembers of an argument, and what each aggregate makes of it.

    argument values with weights ──► accumulators (cells of the group, entries of its multiset)
                                              │
                                     aggregates (COUNT, SUM, AVG, MIN, MAX): results

Accumulators are Z-linear: adding a value with weight -1 undoes adding it with weight +1, and two
deltas merge by adding their cells. Aggregates over the same argument share its accumulators. Both
give lines of Python, which `program` puts together once for each plan.
"""

from jobs.core.accumulators.base import Accumulator, Cell, Storage
from jobs.core.accumulators.count import Count
from jobs.core.accumulators.functions import FUNCTIONS, Function
from jobs.core.accumulators.multiset import Multiset
from jobs.core.accumulators.sum import Sum, sum_of

__all__ = [
    "FUNCTIONS",
    "Accumulator",
    "Cell",
    "Count",
    "Function",
    "Multiset",
    "Storage",
    "Sum",
    "sum_of",
]
