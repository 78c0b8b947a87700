"""The signed rows of a range, and what is computed of them once for all views.

    columns, signs ──┬─► number        equal rows have equal numbers
                     ├─► consolidate   the weighted rows
                     └─► find_buckets  the bucket of each group

A view selects its columns. Views with the same columns share the numbers. If they have the same
group too, they share the weighted rows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from jobs.core.plan.bucket import buckets_of
from jobs.core.rows.consolidate import Integers, WeightedRows, consolidate
from schemas.types.arrow_values import from_arrow
from schemas.types.sql_types import SqlType

T = TypeVar("T")


class RangeRows:
    """The columns and the sign of each row of a range."""

    __slots__ = ("_every", "_known", "_places", "signs")

    def __init__(self, columns: Sequence[pa.Array], signs: Integers) -> None:
        self.signs = signs
        self._every = columns  # of all views
        self._places = tuple(range(len(columns)))  # of these rows' columns among them
        self._known: dict[Hashable, Any] = {}

    @property
    def columns(self) -> list[pa.Array]:
        return [self._every[place] for place in self._places]

    def select(self, indexes: Sequence[int]) -> RangeRows:
        """Return the same rows with some of the columns; both share what they know."""
        selected = RangeRows(self._every, self.signs)
        selected._places = tuple(self._places[index] for index in indexes)
        selected._known = self._known
        return selected

    def take(self, rows: Integers) -> RangeRows:
        """Return some of the rows."""
        taken = pa.array(rows)
        return RangeRows([column.take(taken) for column in self.columns], self.signs[rows])

    def number(self, indexes: Sequence[int] | None = None) -> Integers:
        """Return a number for each row; rows that are equal in these columns have equal numbers.

        Numbers count from 0, with gaps: they are less than the number of rows.
        """
        return self._number(self._places_of(indexes))[0]

    def consolidate(
        self, ordinal: int, group: Sequence[int] | None, at: Integers | None = None
    ) -> WeightedRows:
        """Return the weighted rows of the range; see `core.rows.consolidate`."""

        def compute() -> WeightedRows:
            groups = None if group is None else self.number(group)
            return consolidate(ordinal, self.number(), self.signs, groups, at)

        of_group = None if group is None else self._places_of(group)
        return self._once(("weighted", self._places_of(None), of_group), compute)

    def find_buckets(
        self, group: Sequence[int], types: Sequence[SqlType], buckets: int
    ) -> Integers:
        """Return the bucket of each group, by the group's number."""

        def compute() -> Integers:
            groups = self.number(group)
            one_of = np.full(groups.max(initial=-1) + 1, -1)
            one_of[groups] = np.arange(len(groups))  # any row of the group
            present = np.flatnonzero(one_of >= 0)
            rows = pa.array(one_of[present])
            values = [
                from_arrow(self.columns[index].take(rows), kind)
                for index, kind in zip(group, types, strict=True)
            ]
            one_of[present] = buckets_of(values, types, len(rows), buckets)
            return one_of

        # The hash of a group depends on the order of its columns.
        ordered = tuple(self._places[index] for index in group)
        return self._once(("buckets", ordered, buckets), compute)

    def _places_of(self, indexes: Sequence[int] | None) -> tuple[int, ...]:
        """Return the places of these columns in order, so that `a, b` and `b, a` are the same."""
        places = self._places if indexes is None else [self._places[index] for index in indexes]
        return tuple(sorted(set(places)))

    def _number(self, places: tuple[int, ...]) -> tuple[Integers, int]:
        """Return the numbers of the rows by these columns, and what they are less than."""
        return self._once(("numbers", places), lambda: self._combine(places))

    def _combine(self, places: tuple[int, ...]) -> tuple[Integers, int]:
        if not places:
            return np.zeros(len(self.signs), np.int64), 1
        if len(places) == 1:
            encoded = self._every[places[0]].dictionary_encode(null_encoding="encode")
            return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)
        numbers, size = self._number(places[:-1])
        last, values = self._number(places[-1:])
        numbers, size = numbers * values + last, size * values
        if size > len(numbers):  # number the combinations that occur
            encoded = pa.array(numbers).dictionary_encode()
            numbers, size = encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)
        return numbers, size

    def _once(self, what: Hashable, compute: Callable[[], T]) -> T:
        if what not in self._known:
            self._known[what] = compute()
        found: T = self._known[what]
        return found
