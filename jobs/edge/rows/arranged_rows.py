"""An arrangement: the rows of one side of a join, as a multiset, found by join key.

    rows of an epoch ──► a run, in the order of its codes ─┐
                                                           ├─► runs, each larger than the next one
    runs of the epochs before ─────────────────────────────┘

    code    40 bits: hash of the key │ 24 bits: hash of the other columns

Weights of a row in several runs add up; one below zero is of a retraction before its row. A run
never changes, so whoever looks at some runs is not disturbed. All rows that are found are compared:
a code only says where to look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from jobs.core.join.pairing import cut, expand
from jobs.core.rows.consolidate import Booleans, Integers
from jobs.edge.rows.long_texts import concat, narrow
from jobs.edge.rows.range_rows import RangeRows
from jobs.edge.rows.row_codes import Codes, equal_rows, hash_rows, text_bytes
from schemas.limits import JOIN_BATCH_BYTES, JOIN_BATCH_ROWS

_KEY = np.uint64(((1 << 40) - 1) << 24)
_REST = np.uint64((1 << 24) - 1)
_REST_BITS = np.uint64(40)
_MERGE_RATIO = 2  # a run is merged with the one before it, unless that one is so many times larger


class KeyedRows(NamedTuple):
    """Rows of one side of a join, with their keys and weights."""

    keys: list[pa.Array]
    columns: list[pa.Array]
    weights: Integers

    def take(self, rows: Integers) -> KeyedRows:
        chosen = pa.array(rows)
        return KeyedRows(
            [column.take(chosen) for column in self.keys],
            [column.take(chosen) for column in self.columns],
            self.weights[rows],
        )

    def slice(self, start: int, end: int) -> KeyedRows:
        return KeyedRows(
            [column.slice(start, end - start) for column in self.keys],
            [column.slice(start, end - start) for column in self.columns],
            self.weights[start:end],
        )

    def consolidate(self) -> tuple[KeyedRows, Integers]:
        """Return each row once, without those of weight zero, and where they are here."""
        rows = RangeRows([*self.keys, *self.columns], self.weights)
        weighted = rows.consolidate(0, keep_zeros=False)
        return self.take(weighted.indexes)._replace(weights=weighted.weights), weighted.indexes

    @property
    def has_key(self) -> Booleans:
        """Which rows have a key without NULL."""
        has_key = np.ones(len(self.weights), np.bool_)
        for column in self.keys:
            if column.null_count:
                has_key &= column.is_valid().to_numpy(zero_copy_only=False)
        return has_key

    def split(self) -> tuple[KeyedRows, KeyedRows]:
        """Return the rows with a key, and those whose key has a NULL."""
        has_key = self.has_key
        if has_key.all():
            return self, self.slice(0, 0)
        return self.take(np.flatnonzero(has_key)), self.take(np.flatnonzero(~has_key))

    def find_lasts(self) -> Integers:
        """Return the last one of equal rows, in order."""
        numbers = RangeRows([*self.keys, *self.columns], self.weights).number()
        lasts = np.full(numbers.max(initial=-1) + 1, -1)
        lasts[numbers] = np.arange(len(numbers))  # of equal numbers the last assignment wins
        return np.sort(lasts[lasts >= 0])


class JoinKeys(NamedTuple):
    """Some keys, each once; the number of a key is its index."""

    columns: list[pa.Array]
    codes: Codes  # without those of other columns

    @classmethod
    def of(cls, columns: list[pa.Array], count: int) -> JoinKeys:
        return cls(columns, hash_rows(columns, count) & _KEY)

    @classmethod
    def of_runs(cls, runs: Sequence[Run]) -> tuple[JoinKeys, list[Integers]]:
        """Return the keys of some runs, and the numbers of the keys of each run's rows."""
        keys = [
            pa.concat_arrays(each) for each in zip(*(run.rows.keys for run in runs), strict=True)
        ]
        codes = np.concatenate([run.codes for run in runs])
        numbers = RangeRows(keys, np.zeros(len(codes), np.int64)).number()
        _, firsts, numbers = np.unique(numbers, return_index=True, return_inverse=True)
        found = cls([column.take(pa.array(firsts)) for column in keys], codes[firsts] & _KEY)
        return found, np.split(numbers, np.cumsum([len(run) for run in runs])[:-1])


class FoundRows(NamedTuple):
    """Rows of some keys."""

    numbers: Integers  # of the keys
    columns: list[pa.Array]
    weights: Integers


@dataclass(frozen=True, slots=True)
class Run:
    """Rows in the order of their codes."""

    rows: KeyedRows
    codes: Codes
    # Whether rows with the same hash of their keys have the same key, as nearly always.
    is_plain: bool

    @classmethod
    def of(cls, rows: KeyedRows) -> Run:
        return cls._sort(rows, cls.codes_of(rows))

    @classmethod
    def of_buckets(cls, rows: KeyedRows, buckets: Integers) -> dict[int, Run]:
        codes = cls.codes_of(rows)
        order = np.lexsort((codes, buckets))
        rows, codes, buckets = rows.take(order), codes[order], buckets[order]
        edges = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(buckets)]
        return {
            int(buckets[start]): cls.in_order(rows.slice(start, end), codes[start:end])
            for start, end in pairwise(edges)
            if start < end
        }

    @staticmethod
    def codes_of(rows: KeyedRows) -> Codes:
        count = len(rows.weights)
        rest = hash_rows(rows.columns, count) >> _REST_BITS
        return (hash_rows(rows.keys, count) & _KEY) | rest

    @classmethod
    def merge(cls, runs: Sequence[Run]) -> Run:
        """Return one run; equal rows become one, and without weight none."""
        keys, others = (
            [concat(parts) for parts in zip(*columns, strict=True)]
            for columns in ([run.rows.keys for run in runs], [run.rows.columns for run in runs])
        )
        weights = np.concatenate([run.rows.weights for run in runs])
        merged = cls._sort(
            KeyedRows(keys, others, weights), np.concatenate([run.codes for run in runs])
        )
        return merged._add_up_equal()

    @classmethod
    def _sort(cls, rows: KeyedRows, codes: Codes) -> Run:
        order = np.argsort(codes, kind="stable")
        return cls.in_order(rows.take(order), codes[order])

    @classmethod
    def in_order(cls, rows: KeyedRows, codes: Codes) -> Run:
        """Return a run of rows that are in the order of their codes."""
        keys = codes & _KEY
        alike = np.flatnonzero(keys[1:] == keys[:-1])
        return cls(rows, codes, bool(_equal_to_next(rows.keys, alike).all()))

    def _add_up_equal(self) -> Run:
        rows, codes = self.rows, self.codes
        alike = np.flatnonzero(codes[1:] == codes[:-1])
        alike = alike[_equal_to_next([*rows.keys, *rows.columns], alike)]
        if not len(alike):
            return self
        is_first = np.ones(len(codes), np.bool_)
        is_first[alike + 1] = False
        firsts = np.flatnonzero(is_first)
        weights = np.add.reduceat(rows.weights, firsts)
        return Run(rows.take(firsts), codes[firsts], self.is_plain).with_weights(weights)

    def __len__(self) -> int:
        return len(self.codes)

    def with_weights(self, weights: Integers) -> Run:
        """Return the rows with other weights, without those of weight zero."""
        kept = np.flatnonzero(weights)
        rows = self.rows._replace(weights=weights)
        return Run(rows.take(kept), self.codes[kept], self.is_plain)

    def ranges(self, keys: JoinKeys, numbers: Integers) -> tuple[Integers, Integers]:
        """Return where the rows that may have these keys begin and end."""
        codes = keys.codes[numbers]
        starts = np.searchsorted(self.codes, codes, "left")
        ends = np.searchsorted(self.codes, codes | _REST, "right")
        if self.is_plain:  # the first row of a range speaks for all
            some = np.flatnonzero(starts < ends)
            if len(some):
                wrong = some[~self.have_keys(starts[some], keys, numbers[some])]
                ends[wrong] = starts[wrong]
        return starts, ends

    def find(
        self, keys: JoinKeys, numbers: Integers, rows_max: int
    ) -> Iterator[tuple[Integers, Integers]]:
        """Yield the places of `numbers`, and rows with these keys, at most so many at a time."""
        starts, ends = self.ranges(keys, numbers)
        for of, rows in expand(starts, ends, rows_max):
            if not self.is_plain:
                right = self.have_keys(rows, keys, numbers[of])
                of, rows = of[right], rows[right]
            yield of, rows

    def have_keys(self, rows: Integers, keys: JoinKeys, numbers: Integers) -> Booleans:
        """Return which rows have these keys, one key for each."""
        mine, others = pa.array(rows), pa.array(numbers)
        return equal_rows(
            [column.take(mine) for column in self.rows.keys],
            [column.take(others) for column in keys.columns],
            len(rows),
        )


class Arrangement:
    """The rows of one side, or of a part of it."""

    def __init__(self, runs: Sequence[Run] = ()) -> None:
        self.runs = list(runs)

    def add(self, run: Run) -> Arrangement:
        """Return an arrangement that has these rows too."""
        if not len(run):
            return self
        runs = [*self.runs, run]
        first, size = len(runs) - 1, len(run)
        while first and len(runs[first - 1]) <= _MERGE_RATIO * size:
            first -= 1
            size += len(runs[first])
        merged = Run.merge(runs[first:]) if first < len(runs) - 1 else run
        return Arrangement([*runs[:first], merged] if len(merged) else runs[:first])

    def find(self, keys: JoinKeys, numbers: Integers, rows_max: int) -> Iterator[FoundRows]:
        """Yield the rows with these keys, at most so many at a time."""
        for run in self.runs:
            for of, rows in run.find(keys, numbers, rows_max):
                for part in cut(text_bytes(run.rows.columns, rows), JOIN_BATCH_BYTES):
                    taken = run.rows.take(rows[part])
                    columns = list(map(narrow, taken.columns))
                    yield FoundRows(numbers[of[part]], columns, taken.weights)

    def count_rows(self, keys: JoinKeys, numbers: Integers) -> Integers:
        """Return how many rows `find` reads for each key."""
        counts = np.zeros(len(numbers), np.int64)
        for run in self.runs:
            starts, ends = run.ranges(keys, numbers)
            counts += ends - starts
        return counts

    def weigh_keys(self, keys: JoinKeys, numbers: Integers) -> Integers:
        """Return the sum of the weights of each key's rows."""
        sums = np.zeros(len(numbers), np.int64)
        for run in self.runs:
            for of, rows in run.find(keys, numbers, JOIN_BATCH_ROWS):
                np.add.at(sums, of, run.rows.weights[rows])
        return sums

    def weigh_rows(self, wanted: Run) -> Integers:
        """Return the weight of each of these rows; zero for a row that is not there."""
        sums = np.zeros(len(wanted), np.int64)
        mine = [*wanted.rows.keys, *wanted.rows.columns]
        for run in self.runs:
            starts = np.searchsorted(run.codes, wanted.codes, "left")
            ends = np.searchsorted(run.codes, wanted.codes, "right")
            for of, rows in expand(starts, ends, JOIN_BATCH_ROWS):
                found = run.rows.take(rows)
                at = pa.array(of)
                same = equal_rows(
                    [column.take(at) for column in mine], [*found.keys, *found.columns], len(of)
                )
                np.add.at(sums, of[same], found.weights[same])
        return sums


def _equal_to_next(columns: Sequence[pa.Array], rows: Integers) -> Booleans:
    """Return which of these rows are equal to the one after them."""
    if not len(rows):
        return np.zeros(0, np.bool_)
    mine, following = pa.array(rows), pa.array(rows + 1)
    return equal_rows(
        [column.take(mine) for column in columns],
        [column.take(following) for column in columns],
        len(rows),
    )
