"""Present values: those of one multiset that are there, as a bundle leaves it, in their order.

    stored entries, in order ──┐
                               ├─ merged ──► places, how often ──► the first value, those at a rank,
    what the bundle changes ───┘                                   the most frequent one, all

A place sorts as the value that it stands for: whoever keeps values has something of the kind at
hand (ranks, order keys), and makes a value of it only where one is asked for. Multiplicities below
zero (the stream took away what it never gave) count for nothing. No more is read than is needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from jobs.core.values.change import Value

Place = TypeVar("Place")


class PresentValues(ABC, Generic[Place]):
    """The present values of a multiset; who keeps one says how its places are gone through."""

    @abstractmethod
    def _places(self, descending: bool) -> Iterable[tuple[Place, int]]:
        """Places with their multiplicities, all above zero, in order."""

    @abstractmethod
    def _value(self, place: Place) -> Value: ...

    def entries(self, *, descending: bool = False) -> Iterable[tuple[Value, int]]:
        """The values, and how often each of them is there."""
        for place, times in self._places(descending):
            yield self._value(place), times

    def first(self, *, descending: bool = False) -> Value:
        """The least value, or the greatest; None without any."""
        for place, _ in self._places(descending):
            return self._value(place)
        return None

    def at(self, rank: int, count: int, *, distinct: bool = False) -> tuple[Value, Value]:
        """The value at a rank, of which the first is 1, and the one behind it, or the last twice.
        A value stands there as often as it is there, or once; `count` is how many stand there."""

        def places(descending: bool) -> Iterable[tuple[Place, int]]:
            found = self._places(descending)
            return ((place, 1) for place, _ in found) if distinct else found

        found = at_rank(places, rank, count)
        if found is None:
            return None, None
        low, high = found
        value = self._value(low)
        return value, value if high is low else self._value(high)

    def most_frequent(self) -> Value:
        """The value that is there most often, of several the least; None without any."""
        found = most_frequent(self._places(False))
        return None if found is None else self._value(found[0])


def at_rank(
    places: Callable[[bool], Iterable[tuple[Place, int]]], rank: int, count: int
) -> tuple[Place, Place] | None:
    """The places at a rank and behind it, looked for from the end that is nearer."""
    if 2 * rank <= count:
        return _from_the_first(iter(places(False)), rank)
    return _from_the_last(places(True), count - rank + 1)


def _from_the_first(places: Iterator[tuple[Place, int]], rank: int) -> tuple[Place, Place] | None:
    for place, times in places:
        if times > rank:
            return place, place
        if times == rank:
            behind, _ = next(places, (place, 0))
            return place, behind
        rank -= times
    return None


def _from_the_last(places: Iterable[tuple[Place, int]], rank: int) -> tuple[Place, Place] | None:
    passed: list[Place] = []
    for place, times in places:
        if times >= rank:
            return place, passed[0] if passed and rank == 1 else place
        rank -= times
        passed = [place]
    return None


def most_frequent(places: Iterable[tuple[Place, int]]) -> tuple[Place, int] | None:
    """The first of the places with the greatest multiplicity, and that."""
    return max(places, key=_times, default=None)


def _times(entry: tuple[Any, int]) -> int:
    return entry[1]


class Merged(PresentValues[Place]):
    """Stored entries under the multiplicities (not differences) that a bundle gives some."""

    def __init__(
        self,
        stored: Callable[[bool], Iterable[tuple[Place, int]]],
        changed: Mapping[Place, int],
        value_of: Callable[[Place], Value],
    ) -> None:
        self._stored = stored
        self._changed = changed
        self._value_of = value_of

    def _places(self, descending: bool) -> Iterator[tuple[Place, int]]:
        coming = [place for place, times in self._changed.items() if times > 0]
        coming.sort(reverse=not descending)
        return merged(self._stored(descending), self._changed, coming, descending=descending)

    def _value(self, place: Place) -> Value:
        return self._value_of(place)


def merged(
    stored: Iterable[tuple[Any, int]],
    changed: Mapping[Any, int],
    coming: list[Any],
    *,
    descending: bool,
) -> Iterator[tuple[Any, int]]:
    """Present entries in order: the stored ones, but for those that changed, and `coming`, which
    are the present ones of those, the next one last."""
    for place, times in stored:
        while coming and (coming[-1] > place if descending else coming[-1] < place):
            yield coming[-1], changed[coming.pop()]
        if times > 0 and place not in changed:
            yield place, times
    while coming:
        yield coming[-1], changed[coming.pop()]
