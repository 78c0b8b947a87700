"""Constants that kernels share with their callers; they need no numba."""

from __future__ import annotations

# Formats of messages.
CANAL, MAXWELL, DEBEZIUM = range(3)

# Kinds of columns. From TEXT on, a scan checks and copies the text; whoever asked converts it.
INTEGER, DECIMAL, BOOLEAN, DATE, TIMESTAMP, TEXT, TIME, FLOATING, WIDE, BINARY = range(10)

# What a message is: left to another decoder; with rows, which may be none; of another table.
UNUSUAL, GOOD, FILTERED = range(3)

NO_TIME = -(1 << 63)

# How a DECIMAL is written as text: as a number, as the bytes of its digits in base64, or as either.
AS_NUMBER, AS_BASE64, AS_EITHER = range(3)
# And the bytes of a BINARY: a character for each, or base64 (AS_BASE64).
AS_LATIN1 = 3

# What a cell of a group is: the first two follow rows, the others multiplicities.
COUNT, SUM, DISTINCT_COUNT, DISTINCT_SUM, PRESENT = range(5)

ROWS = 4  # the first value among the words of a group
NO_WORD = -1
MULTISET_BITS = 5
