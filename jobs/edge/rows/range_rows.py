"""The signed rows of a range, and what is computed of them once for all views.

    columns, signs ──┬─► number        equal rows have equal numbers
                     ├─► consolidate   the weighted rows
                     └─► find_buckets  the bucket of each group

A view selects its columns. Views with the same columns share the numbers. If they have the same
group too, they share the weighted rows. What is kept here is 4 bytes a row for each column, and 8
for each set of columns that a view reads or groups by.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from jobs.core.plan.bucket import buckets_of
from jobs.core.rows.consolidate import Integers, WeightedRows, consolidate, consolidate_with_heads
from schemas.types.arrow_values import from_arrow
from schemas.types.sql_types import SqlType

T = TypeVar("T")


class RangeRows:
    """The columns and the sign of each row of a range."""

    __slots__ = ("_at", "_every", "_known", "_places", "signs")

    def __init__(self, columns: Sequence[pa.Array], signs: Integers) -> None:
        self.signs = signs
        self._every = columns  # of all views
        self._places = tuple(range(len(columns)))  # of these rows' columns among them
        self._at: Integers | None = None  # their positions in the range, if they are a part of it
        self._known: dict[Hashable, Any] = {}

    @property
    def columns(self) -> list[pa.Array]:
        return [self._every[place] for place in self._places]

    def select(self, indexes: Sequence[int]) -> RangeRows:
        """Return the same rows with some of the columns; both share what they know."""
        selected = RangeRows(self._every, self.signs)
        selected._places = tuple(self._places[index] for index in indexes)
        selected._at = self._at
        selected._known = self._known
        return selected

    def take(self, rows: Integers) -> RangeRows:
        """Return some of the rows; each keeps its position in the range."""
        chosen = pa.array(rows)
        taken = RangeRows([column.take(chosen) for column in self.columns], self.signs[rows])
        taken._at = rows if self._at is None else self._at[rows]
        return taken

    def number(self, indexes: Sequence[int] | None = None) -> Integers:
        """Return a number for each row; rows that are equal in these columns have equal numbers.

        Numbers count from 0, with gaps: they are less than the number of rows.
        """
        places = self._places_of(indexes)
        return self.once(("numbers", places), lambda: self._combine(places))

    def consolidate(self, ordinal: int, *, keep_zeros: bool) -> WeightedRows:
        """Return the weighted rows of the range; see `core.rows.consolidate`."""

        def compute() -> WeightedRows:
            return consolidate(ordinal, self.number(), self.signs, self._at, keep_zeros=keep_zeros)

        return self.once(("weighted", ordinal, self._places_of(None), keep_zeros), compute)

    def consolidate_with_heads(self, ordinal: int, group: Sequence[int] | None) -> WeightedRows:
        """Return the weighted rows of the range, and the retractions at its head."""

        def compute() -> WeightedRows:
            groups = None if group is None else self.number(group)
            return consolidate_with_heads(ordinal, self.number(), self.signs, groups, self._at)

        of_group = None if group is None else self._places_of(group)
        return self.once(("with heads", ordinal, self._places_of(None), of_group), compute)

    def find_buckets(
        self, group: Sequence[int | None], types: Sequence[SqlType], buckets: int
    ) -> Integers:
        """Return the bucket of each group, by the group's number; a column None counts as NULL."""

        def compute() -> Integers:
            groups = self.number([index for index in group if index is not None])
            one_of = np.full(groups.max(initial=-1) + 1, -1)
            one_of[groups] = np.arange(len(groups))  # any row of the group
            present = np.flatnonzero(one_of >= 0)
            rows = pa.array(one_of[present])
            values = [
                [None] * len(rows)
                if index is None
                else from_arrow(self.columns[index].take(rows), kind)
                for index, kind in zip(group, types, strict=True)
            ]
            one_of[present] = buckets_of(values, types, len(rows), buckets)
            return one_of

        # The hash of a group depends on the order of its columns.
        ordered = tuple(None if index is None else self._places[index] for index in group)
        return self.once(("buckets", ordered, buckets), compute)

    def _places_of(self, indexes: Sequence[int] | None) -> tuple[int, ...]:
        """Return the places of these columns in order, so that `a, b` and `b, a` are the same."""
        places = self._places if indexes is None else [self._places[index] for index in indexes]
        return tuple(sorted(set(places)))

    def _combine(self, places: tuple[int, ...]) -> Integers:
        """Return the numbers of the rows by these columns."""
        numbers, size = np.zeros(len(self.signs), np.int64), 1  # each number is less than size
        for place in places:
            codes, values = self._encode(place)
            numbers, size = numbers * values + codes, size * values
            if size > len(numbers):  # number the combinations that occur
                encoded = pa.array(numbers).dictionary_encode()
                numbers, size = encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)
        return numbers

    def _encode(self, place: int) -> tuple[np.ndarray[Any, np.dtype[np.int32]], int]:
        """Return the number of each row's value in one column, and how many values it has."""

        def compute() -> tuple[np.ndarray[Any, np.dtype[np.int32]], int]:
            encoded = self._every[place].dictionary_encode(null_encoding="encode")
            return encoded.indices.to_numpy(), len(encoded.dictionary)

        return self.once(("codes", place), compute)

    def once(self, what: Hashable, compute: Callable[[], T]) -> T:
        """Return what is computed of these rows, or was before; `what` says it without doubt."""
        if what not in self._known:
            self._known[what] = compute()
        found: T = self._known[what]
        return found
