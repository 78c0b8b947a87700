"""The present values of a multiset after a bundle, in order.

    stored entries, in order ──┐
                               ├─ merged ──► keys, how often ──► the first value, those at a rank,
    what the bundle changes ───┘                                   the most frequent one, all

A sort key sorts as its value does. A store has such keys (ranks, order keys), and converts a key to
its value only when the value is needed. A value with a negative multiplicity (retracted, but never
added) is not present. A query reads no more entries than it needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from jobs.core.values.change import Value

SortKey = TypeVar("SortKey")


class PresentValues(ABC, Generic[SortKey]):
    """The present values of a multiset; a store of multisets implements the abstract methods."""

    @abstractmethod
    def _keys(self, descending: bool) -> Iterable[tuple[SortKey, int]]:
        """Return sort keys with positive multiplicities, in order."""

    @abstractmethod
    def _value(self, key: SortKey) -> Value:
        """Return the value of a sort key."""

    def entries(self, *, descending: bool = False) -> Iterable[tuple[Value, int]]:
        """Yield the values with their multiplicities."""
        for key, times in self._keys(descending):
            yield self._value(key), times

    def first(self, *, descending: bool = False) -> Value:
        """Return the smallest value, or the greatest; None without values."""
        for key, _ in self._keys(descending):
            return self._value(key)
        return None

    def at(self, rank: int, count: int, *, distinct: bool = False) -> tuple[Value, Value]:
        """Return the value at a rank (from 1) and the next one; for the last rank the same twice.

        A value occupies as many ranks as its multiplicity, or one if `distinct`; `count` is the
        number of ranks."""

        def keys(descending: bool) -> Iterable[tuple[SortKey, int]]:
            entries = self._keys(descending)
            return ((key, 1) for key, _ in entries) if distinct else entries

        pair = find_rank(keys, rank, count)
        if pair is None:
            return None, None
        low, high = pair
        value = self._value(low)
        return value, value if high is low else self._value(high)

    def most_frequent(self) -> Value:
        """Return the most frequent value, of several the smallest; None without values."""
        entry = find_most_frequent(self._keys(False))
        return None if entry is None else self._value(entry[0])


def find_rank(
    keys: Callable[[bool], Iterable[tuple[SortKey, int]]], rank: int, count: int
) -> tuple[SortKey, SortKey] | None:
    """Return the keys at a rank and at the next one, searching from the nearer end."""
    if 2 * rank <= count:
        return _from_the_first(iter(keys(False)), rank)
    return _from_the_last(keys(True), count - rank + 1)


def _from_the_first(
    keys: Iterator[tuple[SortKey, int]], rank: int
) -> tuple[SortKey, SortKey] | None:
    for key, times in keys:
        if times > rank:
            return key, key
        if times == rank:
            following, _ = next(keys, (key, 0))
            return key, following
        rank -= times
    return None


def _from_the_last(
    keys: Iterable[tuple[SortKey, int]], rank: int
) -> tuple[SortKey, SortKey] | None:
    passed: list[SortKey] = []
    for key, times in keys:
        if times >= rank:
            return key, passed[0] if passed and rank == 1 else key
        rank -= times
        passed = [key]
    return None


def find_most_frequent(keys: Iterable[tuple[SortKey, int]]) -> tuple[SortKey, int] | None:
    """Return the first key with the greatest multiplicity, and this multiplicity."""
    return max(keys, key=_times, default=None)


def _times(entry: tuple[Any, int]) -> int:
    return entry[1]


class MergedValues(PresentValues[SortKey]):
    """Stored entries with the new multiplicities (not differences) of a bundle's entries."""

    def __init__(
        self,
        stored: Callable[[bool], Iterable[tuple[SortKey, int]]],
        changed: Mapping[SortKey, int],
        value_of: Callable[[SortKey], Value],
    ) -> None:
        self._stored = stored
        self._changed = changed
        self._value_of = value_of

    def _keys(self, descending: bool) -> Iterator[tuple[SortKey, int]]:
        coming = [key for key, times in self._changed.items() if times > 0]
        coming.sort(reverse=not descending)
        return merge_entries(self._stored(descending), self._changed, coming, descending=descending)

    def _value(self, key: SortKey) -> Value:
        return self._value_of(key)


def merge_entries(
    stored: Iterable[tuple[Any, int]],
    changed: Mapping[Any, int],
    coming: list[Any],
    *,
    descending: bool,
) -> Iterator[tuple[Any, int]]:
    """Yield the present entries in order: unchanged stored entries, and changed ones.

    `coming` has the keys of the present changed entries, with the next one last."""
    for key, times in stored:
        while coming and (coming[-1] > key if descending else coming[-1] < key):
            yield coming[-1], changed[coming.pop()]
        if times > 0 and key not in changed:
            yield key, times
    while coming:
        yield coming[-1], changed[coming.pop()]
