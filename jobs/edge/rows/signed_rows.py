"""Collect the signed rows of a range as Arrow arrays of the used columns.

    changes, message by message ──► rows ─┐
    scanned messages ─────────────────────┴► arrays, piece by piece ──► joined

The Python objects of a row live no longer than its piece of the range.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.kernels.codes import NO_TIME
from jobs.core.plan.tree import Column
from jobs.core.rows.consolidate import Booleans, Integers
from jobs.core.values.change import Row
from jobs.edge.rows.range_rows import RangeRows
from schemas.types.arrow_values import to_arrow
from schemas.types.sql_types import Kind

_REPLACEMENT = "\ufffd"
_FIRST_BYTE = _REPLACEMENT.encode()[0]


class SignedRows:
    """The signed rows of a range, in the order in which they were added."""

    def __init__(self, used: tuple[Column, ...]) -> None:
        self._used = used
        self._columns: list[list[pa.Array]] = [[] for _ in used]
        self.signs: list[Integers] = []
        self.count = 0
        self.bytes = 0
        self._offsets: list[Integers] = []  # if `add_messages` is called for all rows
        self._times: list[Integers] = []

    def add(self, changes: list[tuple[int, Row]]) -> None:
        if not changes:
            return
        signs, rows = zip(*changes, strict=True)
        columns = islice(zip(*rows, strict=True), len(self._used))  # a column of time stays here
        for arrays, values, column in zip(self._columns, columns, self._used, strict=True):
            arrays.append(to_arrow(values, column.type))
            self.bytes += arrays[-1].nbytes
        self.signs.append(np.array(signs, np.int64))
        self.count += len(signs)

    def add_scanned(self, columns: list[pa.Array], signs: Integers) -> None:
        if not len(signs):
            return
        for arrays, column in zip(self._columns, columns, strict=True):
            arrays.append(column)
            self.bytes += column.nbytes
        self.signs.append(signs)
        self.count += len(signs)

    def count_damaged_texts(self) -> int:
        """Return how many texts have a replacement character, which stands for a lost one."""
        texts = (
            array
            for column, arrays in zip(self._used, self._columns, strict=True)
            if column.type.kind is Kind.STRING
            for array in arrays
        )
        return sum(map(_count_replaced, texts))

    def add_messages(self, offsets: Integers, times: Integers) -> None:
        """Add the offset of each row's message, and the time that the source gave it."""
        self._offsets.append(offsets)
        self._times.append(times)

    @property
    def offsets(self) -> Integers:
        """The offset of each row's message; it must have been added."""
        return np.concatenate(self._offsets)

    def are_not_of(self, offsets: Collection[int]) -> Booleans:
        """Return which rows are of other messages than these."""
        return np.isin(self.offsets, list(offsets), invert=True)

    @property
    def times(self) -> pa.Array:
        """The time of each row's message; it must have been added."""
        times = np.concatenate(self._times)
        return pa.array(times, mask=times == NO_TIME)

    def concatenate(self) -> RangeRows:
        columns = [pa.concat_arrays(arrays) for arrays in self._columns]
        return RangeRows(columns, np.concatenate(self.signs))


def _count_replaced(texts: pa.Array) -> int:
    """Count texts with a replacement character; usually no byte of them can begin one."""
    _, ends, content = texts.buffers()
    if content is None:
        return 0
    bounds = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    octets = np.frombuffer(content, np.uint8)[bounds[0] : bounds[-1]]
    if not (octets == _FIRST_BYTE).any():
        return 0
    return pc.sum(pc.match_substring(texts, _REPLACEMENT)).as_py() or 0
