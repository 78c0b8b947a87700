"""Multiset records: how the values of one argument of one group are kept in LMDB, and looked into.

    small   argument, group          -> all values with their multiplicities, in one record
    large   argument, group          -> Marks
            argument, group, value   -> a multiplicity each, in the order of the values

Marks are what the last bundle has found out about a large one: some places and how many values
stand before each, and the value that is there most often. So a median is looked for from where it
was, and a bundle that takes nothing from the most frequent value need not count the others again.
A bundle that finds nothing out, or is applied by someone who did not fold it, leaves none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import lmdb
import msgspec

from jobs.core.aggregates.present_values import Merged, PresentValues, merged, most_frequent
from jobs.core.fold.state import rank
from jobs.core.values.change import Value
from jobs.core.values.order_key import bounded
from jobs.edge.state.argument_records import Argument, Marks
from schemas import limits

KEY_BYTES_MAX = limits.KEY_PREFIX_BYTES_MAX
FIRST, PAST_EVERY_VALUE = b"", b"\xff"
NO_MARKS = Marks()
Overlay = Mapping[Value, int]

encode = msgspec.msgpack.Encoder().encode


class _LongEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An entry whose key is cut: the multiplicity and the whole order key of its value."""

    multiplicity: int
    value: bytes


_decode_multiplicity = msgspec.msgpack.Decoder(int).decode
_decode_long = msgspec.msgpack.Decoder(_LongEntry).decode


class SmallValues(PresentValues[Any]):
    """The values of a multiset that is one record, as `overlay` leaves it; a place is what stands
    for a value there. Nothing is sorted before somebody asks for the order."""

    def __init__(
        self, argument: Argument, start: bytes, small: dict[Any, int], overlay: Overlay
    ) -> None:
        self.overlay = overlay
        self._argument = argument
        self._start = start
        self._counts = {**small, **argument.written(overlay)} if overlay else small
        self._sorted = False

    @cached_property
    def _found(self) -> list[tuple[Any, int]]:
        return [entry for entry in self._counts.items() if entry[1] > 0]

    @property
    def _by(self) -> Callable[[tuple[Any, int]], Any] | None:
        """What entries sort by; no query keeps NULLs, but a state may."""
        return _rank_of_place if None in self._counts else None

    def _places(self, descending: bool) -> Iterable[tuple[Any, int]]:
        if not self._sorted:
            self._found.sort(key=self._by)
            self._sorted = True
        return reversed(self._found) if descending else self._found

    def _value(self, place: Any) -> Value:
        return self._argument.read(place)

    def entries(self, *, descending: bool = False) -> Iterable[tuple[Value, int]]:
        if self._argument.plain:
            return self._places(descending)
        return super().entries(descending=descending)

    def first(self, *, descending: bool = False) -> Value:
        if not self._found:
            return None
        choose = max if descending else min
        return self._value(choose(self._found, key=self._by)[0])

    def records(self) -> Iterator[tuple[bytes, bytes | None]]:
        """What LMDB holds of it. One that has grown too large becomes one with an entry a value."""
        counts = self._counts
        if 0 in counts.values():
            counts = {place: times for place, times in counts.items() if times}
        record = encode(counts)
        if len(record) <= limits.HOT_STATE_SMALL_MULTISET_BYTES:
            yield self._start, record if counts else None
        else:
            yield from _entries(self._start, self._argument.ordered(counts))
            yield self._start, encode(NO_MARKS)


def _rank_of_place(entry: tuple[Any, int]) -> Any:
    return rank(entry[0])


class LargeMultiset:
    """The stored entries of a multiset that has one for each value."""

    def __init__(self, argument: Argument, start: bytes, entries: lmdb.Cursor[bytes]) -> None:
        self.argument = argument
        self.start = start
        self._entries = entries

    def places(
        self, *, descending: bool = False, place: bytes | None = None
    ) -> Iterator[tuple[bytes, int]]:
        """Order keys and multiplicities in order, from a place on; those before it if descending.
        Cut keys that begin alike come in no order of theirs, so that such a run is read whole and
        sorted by the full values; a place is never in one."""
        start = self.start
        run: list[tuple[bytes, int]] = []
        run_prefix = b""
        for entry, data in self._records(descending, place):
            cut = len(entry) > KEY_BYTES_MAX
            if run and not (cut and entry.startswith(run_prefix)):
                yield from sorted(run, reverse=descending)
                run = []
            if cut:
                long = _decode_long(data)
                run.append((long.value, long.multiplicity))
                run_prefix = entry[:KEY_BYTES_MAX]
            else:
                yield entry[len(start) :], _decode_multiplicity(data)
        yield from sorted(run, reverse=descending)

    def _records(self, descending: bool, place: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        start, cursor = self.start, self._entries
        if not descending:
            more = cursor.set_range(start + (place or FIRST))
            step = cursor.next
        else:
            past = cursor.set_range(start + (place or PAST_EVERY_VALUE))
            more = cursor.prev() if past else cursor.last()
            step = cursor.prev
        while more:
            entry, data = cursor.item()
            if not entry.startswith(start):
                return
            if entry != start:  # that one has the marks
                yield entry, data
            more = step()

    def begins_at(self, place: bytes) -> bool:
        """Whether reading may begin there."""
        return len(self.start) + len(place) <= KEY_BYTES_MAX


class LargeValues(Merged[bytes]):
    """The values of such a multiset, as `overlay` leaves it; a place is an order key. `before` has
    the stored multiplicities of what changes, as far as they are known."""

    def __init__(
        self, stored: LargeMultiset, marks: Marks, overlay: Overlay, before: Overlay
    ) -> None:
        orders, value_of = stored.argument.orders, stored.argument.value
        changed = {orders[value]: times for value, times in overlay.items()}
        super().__init__(lambda down: stored.places(descending=down), changed, value_of)
        self.overlay = overlay
        self._multiset = stored
        self._stored_marks = marks
        self._marks = marks if overlay.keys() <= before.keys() else NO_MARKS
        self._before = before
        self._ranked: dict[bytes, int] = {}
        self._top: tuple[bytes, int] | None = None

    def at(self, rank: int, count: int, *, distinct: bool = False) -> tuple[Value, Value]:
        if distinct:  # marks count a value as often as it is there
            return super().at(rank, count, distinct=True)
        marks = [(FIRST, 0), *self._moved_marks, (PAST_EVERY_VALUE, count)]
        place, before = min(marks, key=lambda mark: abs(mark[1] + 1 - rank))
        if before >= rank:
            place, before = self._back(place, before, rank)
        places = self._from(place, descending=False)
        for each, times in places:
            if before + times >= rank:
                self._ranked[each] = before
                only = before + times > rank
                behind, _ = (each, 0) if only else next(places, (each, 0))
                return self._value(each), self._value(behind)
            before += times
        return None, None

    def most_frequent(self) -> Value:
        top, changed = self._marks.top, self._changed
        if top is None or changed.get(top[0], top[1]) < top[1]:
            self._top = most_frequent(self._places(False))
        else:
            known = {top[0]: top[1], **changed}
            most = max(known.values())
            self._top = min(place for place, times in known.items() if times == most), most
        return None if self._top is None else self._value(self._top[0])

    def records(self) -> Iterator[tuple[bytes, bytes | None]]:
        """What LMDB holds of what has changed, and the marks that were found."""
        start = self._multiset.start
        yield from _entries(start, self._changed.items())
        kept = filter(lambda mark: self._multiset.begins_at(mark[0]), self._ranked.items())
        marks = Marks(tuple(sorted(kept)), self._top)
        if marks != self._stored_marks:
            record = encode(marks)
            too_long = len(record) > limits.HOT_STATE_SMALL_MULTISET_BYTES
            yield start, encode(NO_MARKS) if too_long else record

    def _back(self, place: bytes, before: int, rank: int) -> tuple[bytes, int]:
        """The last place from which a rank can be reached, and how many values are before that."""
        for each, times in self._from(place, descending=True):
            before -= times
            if before < rank and self._multiset.begins_at(each):
                return each, before
        return FIRST, 0

    @cached_property
    def _moved_marks(self) -> list[tuple[bytes, int]]:
        """The stored marks, with as many values before them as the bundle leaves there."""
        if not self._marks.places:
            return []
        orders, before = self._multiset.argument.orders, self._before
        grown = [
            (orders[value], max(times, 0) - max(before[value], 0))
            for value, times in self.overlay.items()
        ]
        return [
            (mark, count + sum(more for place, more in grown if place < mark))
            for mark, count in self._marks.places
        ]

    def _from(self, place: bytes, *, descending: bool) -> Iterator[tuple[bytes, int]]:
        """The present entries from a place on; or those before it, the nearest first."""
        coming = [
            each
            for each, times in self._changed.items()
            if times > 0 and (each < place) is descending
        ]
        coming.sort(reverse=not descending)
        stored = self._multiset.places(descending=descending, place=place)
        return merged(stored, self._changed, coming, descending=descending)


def _entries(
    start: bytes, counts: Iterable[tuple[bytes, int]]
) -> Iterator[tuple[bytes, bytes | None]]:
    """The records of a large multiset's values, given by their order keys."""
    for order, multiplicity in counts:
        entry = entry_key(start, order)
        if not multiplicity:
            yield entry, None
        elif len(start) + len(order) > KEY_BYTES_MAX:
            yield entry, encode(_LongEntry(multiplicity, order))
        else:
            yield entry, encode(multiplicity)


def entry_key(start: bytes, order: bytes) -> bytes:
    entry = start + order
    return entry if len(entry) <= KEY_BYTES_MAX else bounded(entry, KEY_BYTES_MAX)


def multiplicity(entry: bytes, data: bytes) -> int:
    """What the record of a value says."""
    if len(entry) > KEY_BYTES_MAX:
        return _decode_long(data).multiplicity
    return _decode_multiplicity(data)
