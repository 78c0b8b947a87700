"""Numbers by which kernels and their callers mean the same; they need no numba."""

from __future__ import annotations

# Kinds of columns.
INTEGER, DECIMAL, TEXT, BOOLEAN, DATE, TIMESTAMP, TIME, DOUBLE = range(8)

# What a message is: left to another decoder; with rows, which may be none; of another table.
ODD, GOOD, FILTERED = range(3)

NO_TIME = -(1 << 63)

# What a cell of a group is: the first two follow rows, the others multiplicities.
COUNT, SUM, DISTINCT_COUNT, DISTINCT_SUM, PRESENT = range(5)

ROWS = 4  # the first value among the words of a group
NO_WORD = -1
MULTISET_BITS = 5
