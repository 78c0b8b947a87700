"""Store and read in LMDB the values of one argument of one group.

    small   argument, group          -> all values with their multiplicities, in one record
    large   argument, group          -> Marks
            argument, group, value   -> one multiplicity, in the order of the values

Marks keep what the last bundle learned about a large multiset: the number of values before some
value keys, and the most frequent value. So the search for a median starts at the last median, and a
bundle that removes no most frequent value need not count the others again. A bundle that learns
nothing, or that another process applies, leaves no marks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import lmdb
import msgspec

from jobs.core.aggregates.present_values import (
    MergedValues,
    PresentValues,
    find_most_frequent,
    merge_entries,
)
from jobs.core.fold.state import rank
from jobs.core.values.change import Value
from jobs.core.values.order_key import shorten_key
from jobs.edge.state.argument_records import Argument, Marks
from schemas import limits

KEY_BYTES_MAX = limits.KEY_PREFIX_BYTES_MAX
FIRST, PAST_EVERY_VALUE = b"", b"\xff"
NO_MARKS = Marks()
Overlay = Mapping[Value, int]

encode = msgspec.msgpack.Encoder().encode


class _LongEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An entry whose key is cut: the multiplicity and the full order key of its value."""

    multiplicity: int
    value: bytes


_decode_count = msgspec.msgpack.Decoder(int).decode
_decode_long = msgspec.msgpack.Decoder(_LongEntry).decode


class SmallValues(PresentValues[Any]):
    """The values of a small multiset with `overlay` applied.

    A value key is the stored form of a value. Entries are sorted when the order is first needed.
    """

    def __init__(
        self, argument: Argument, start: bytes, small: dict[Any, int], overlay: Overlay
    ) -> None:
        self.overlay = overlay
        self._argument = argument
        self._start = start
        self._counts = {**small, **argument.encode_small(overlay)} if overlay else small
        self._sorted = False

    @cached_property
    def _present(self) -> list[tuple[Any, int]]:
        return [entry for entry in self._counts.items() if entry[1] > 0]

    @property
    def _sort_key(self) -> Callable[[tuple[Any, int]], Any] | None:
        """The sort key of entries; no query keeps NULLs, but a state may."""
        return _rank_of_place if None in self._counts else None

    def _keys(self, descending: bool) -> Iterable[tuple[Any, int]]:
        if not self._sorted:
            self._present.sort(key=self._sort_key)
            self._sorted = True
        return reversed(self._present) if descending else self._present

    def _value(self, value_key: Any) -> Value:
        return self._argument.decode_small(value_key)

    def entries(self, *, descending: bool = False) -> Iterable[tuple[Value, int]]:
        if self._argument.plain:
            return self._keys(descending)
        return super().entries(descending=descending)

    def first(self, *, descending: bool = False) -> Value:
        if not self._present:
            return None
        choose = max if descending else min
        return self._value(choose(self._present, key=self._sort_key)[0])

    def to_records(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield its records; a multiset that has grown too large becomes a large one."""
        counts = self._counts
        if 0 in counts.values():
            counts = {value_key: times for value_key, times in counts.items() if times}
        record = encode(counts)
        if len(record) <= limits.HOT_STATE_SMALL_MULTISET_BYTES:
            yield self._start, record if counts else None
        else:
            yield from _encode_entries(self._start, self._argument.order_keys(counts))
            yield self._start, encode(NO_MARKS)


def _rank_of_place(entry: tuple[Any, int]) -> Any:
    return rank(entry[0])


class LargeMultiset:
    """The stored entries of a large multiset."""

    def __init__(self, argument: Argument, start: bytes, entries: lmdb.Cursor[bytes]) -> None:
        self.argument = argument
        self.start = start
        self._entries = entries

    def read_value_keys(
        self, *, descending: bool = False, value_key: bytes | None = None
    ) -> Iterator[tuple[bytes, int]]:
        """Yield (order key, multiplicity) in order from `value_key` on, or before it if descending.

        Cut keys with the same prefix are stored unordered. Such a run is read whole and sorted by
        the full values; `value_key` is never in a run.
        """
        start = self.start
        run: list[tuple[bytes, int]] = []
        run_prefix = b""
        for entry, data in self._read_records(descending, value_key):
            cut = len(entry) > KEY_BYTES_MAX
            if run and not (cut and entry.startswith(run_prefix)):
                yield from sorted(run, reverse=descending)
                run = []
            if cut:
                long = _decode_long(data)
                run.append((long.value, long.multiplicity))
                run_prefix = entry[:KEY_BYTES_MAX]
            else:
                yield entry[len(start) :], _decode_count(data)
        yield from sorted(run, reverse=descending)

    def _read_records(
        self, descending: bool, value_key: bytes | None
    ) -> Iterator[tuple[bytes, bytes]]:
        start, cursor = self.start, self._entries
        if not descending:
            more = cursor.set_range(start + (value_key or FIRST))
            step = cursor.next
        else:
            past = cursor.set_range(start + (value_key or PAST_EVERY_VALUE))
            more = cursor.prev() if past else cursor.last()
            step = cursor.prev
        while more:
            entry, data = cursor.item()
            if not entry.startswith(start):
                return
            if entry != start:  # this key has the marks
                yield entry, data
            more = step()

    def can_start_at(self, value_key: bytes) -> bool:
        """Return whether `read_value_keys` may start at this key: its key is not cut."""
        return len(self.start) + len(value_key) <= KEY_BYTES_MAX


class LargeValues(MergedValues[bytes]):
    """The values of a large multiset with `overlay` applied; a value key is an order key.

    `before` has the known stored multiplicities of the values in `overlay`.
    """

    def __init__(
        self, stored: LargeMultiset, marks: Marks, overlay: Overlay, before: Overlay
    ) -> None:
        orders, value_of = stored.argument.orders, stored.argument.value
        changed = {orders[value]: times for value, times in overlay.items()}
        super().__init__(lambda down: stored.read_value_keys(descending=down), changed, value_of)
        self.overlay = overlay
        self._multiset = stored
        self._stored_marks = marks
        self._marks = marks if overlay.keys() <= before.keys() else NO_MARKS
        self._before = before
        self._ranked: dict[bytes, int] = {}
        self._top: tuple[bytes, int] | None = None

    def at(self, rank: int, count: int, *, distinct: bool = False) -> tuple[Value, Value]:
        if distinct:  # marks count every occurrence of a value
            return super().at(rank, count, distinct=True)
        marks = [(FIRST, 0), *self._current_marks, (PAST_EVERY_VALUE, count)]
        value_key, before = min(marks, key=lambda mark: abs(mark[1] + 1 - rank))
        if before >= rank:
            value_key, before = self._step_back(value_key, before, rank)
        value_keys = self._read_from(value_key, descending=False)
        for each, times in value_keys:
            if before + times >= rank:
                self._ranked[each] = before
                only = before + times > rank
                behind, _ = (each, 0) if only else next(value_keys, (each, 0))
                return self._value(each), self._value(behind)
            before += times
        return None, None

    def most_frequent(self) -> Value:
        top, changed = self._marks.top, self._changed
        if top is None or changed.get(top[0], top[1]) < top[1]:
            self._top = find_most_frequent(self._keys(False))
        else:
            known = {top[0]: top[1], **changed}
            most = max(known.values())
            self._top = min(value_key for value_key, times in known.items() if times == most), most
        return None if self._top is None else self._value(self._top[0])

    def to_records(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the changed records and the new marks."""
        start = self._multiset.start
        yield from _encode_entries(start, self._changed.items())
        kept = filter(lambda mark: self._multiset.can_start_at(mark[0]), self._ranked.items())
        marks = Marks(tuple(sorted(kept)), self._top)
        if marks != self._stored_marks:
            record = encode(marks)
            too_long = len(record) > limits.HOT_STATE_SMALL_MULTISET_BYTES
            yield start, encode(NO_MARKS) if too_long else record

    def _step_back(self, value_key: bytes, before: int, rank: int) -> tuple[bytes, int]:
        """Return the last value key before which fewer than `rank` values are, and their number."""
        for each, times in self._read_from(value_key, descending=True):
            before -= times
            if before < rank and self._multiset.can_start_at(each):
                return each, before
        return FIRST, 0

    @cached_property
    def _current_marks(self) -> list[tuple[bytes, int]]:
        """The stored marks, with the number of values before them after the bundle."""
        if not self._marks.value_keys:
            return []
        orders, before = self._multiset.argument.orders, self._before
        grown = [
            (orders[value], max(times, 0) - max(before[value], 0))
            for value, times in self.overlay.items()
        ]
        return [
            (mark, count + sum(more for value_key, more in grown if value_key < mark))
            for mark, count in self._marks.value_keys
        ]

    def _read_from(self, value_key: bytes, *, descending: bool) -> Iterator[tuple[bytes, int]]:
        """Yield the entries from `value_key` on, or before it if descending, nearest first."""
        coming = [
            each
            for each, times in self._changed.items()
            if times > 0 and (each < value_key) is descending
        ]
        coming.sort(reverse=not descending)
        stored = self._multiset.read_value_keys(descending=descending, value_key=value_key)
        return merge_entries(stored, self._changed, coming, descending=descending)


def _encode_entries(
    start: bytes, counts: Iterable[tuple[bytes, int]]
) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the records of a large multiset's values, given by their order keys."""
    for order, multiplicity in counts:
        entry = entry_key(start, order)
        if not multiplicity:
            yield entry, None
        elif len(start) + len(order) > KEY_BYTES_MAX:
            yield entry, encode(_LongEntry(multiplicity, order))
        else:
            yield entry, encode(multiplicity)


def entry_key(start: bytes, order: bytes) -> bytes:
    """Return the key of a value's entry, cut if it is too long for LMDB."""
    entry = start + order
    return entry if len(entry) <= KEY_BYTES_MAX else shorten_key(entry, KEY_BYTES_MAX)


def decode_multiplicity(entry: bytes, data: bytes) -> int:
    """Return the multiplicity in an entry's record."""
    if len(entry) > KEY_BYTES_MAX:
        return _decode_long(data).multiplicity
    return _decode_count(data)
