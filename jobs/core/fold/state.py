"""State: what a fold reads of the epochs before, and what an epoch leaves for the next.

    committed state ──► groups, multisets, present ──► fold of epoch E
          ▲                                                │
          └─────────── Upserts, once E is committed ◄──────┘

A group's accumulator is a `Group`. Aggregates that must survive retractions exactly (MIN, MAX)
also keep a multiset: (argument, group, value) -> multiplicity, in the order of the values, where
a multiplicity may be negative (the stream took away what it never gave). Whoever folds keeps the
changes of its own epoch beside the state, as the overlay; a state is never written by a fold.

What time is to make due is state as well: a group may want to be looked at when a clock has come to
a time (`GroupTimer`), and under the event clock its changes may be withheld until the bundle ends.

`MemoryState` is the state of replays and of property tests; the hot state keeps the same on disk.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from jobs.core.aggregates.present_values import Merged, PresentValues
from jobs.core.fold.timers import Clock, Timer, TimerQueue
from jobs.core.values.change import Value

Key = tuple[Value, ...]
Rank = tuple[int, Any]
Counts = dict[Value, int]  # multiplicities by value

_NULL_RANK: Rank = (0, None)
_NAN_RANK: Rank = (2, None)
_ROW_RANK = 3


# What of a group's changes has been emitted: all; not those since its last result; none ever. A
# closed one has its result for ever: the table keeps that, and a state has nothing of it. A hidden
# one does not pass HAVING: it has no row, and all of its state.
SHOWN, WITHHELD, UNSHOWN, CLOSED, HIDDEN = range(5)


class Group(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The accumulator of a group: `cells[0]` is the row count; integers may be of any size."""

    cells: tuple[Any, ...]
    result: tuple[Any, ...]  # the values last emitted; NULLs where none ever were
    held: int = SHOWN
    written: int | None = None  # under a TTL: when, in processing time ...
    timer: int | None = None  # ... and for when its timer is set

    @property
    def withheld(self) -> bool:
        """Whether it has changes that are still to be emitted."""
        return self.held in (WITHHELD, UNSHOWN)


class GroupTimer(NamedTuple):
    """A group to be looked at when a clock has come to a time; the namespace says what for."""

    clock: Clock
    time: int
    namespace: str
    key: Key


class Upserts(msgspec.Struct, gc=False):
    """What an epoch changed: a group without accumulator is gone, a multiplicity of 0 too, and a
    timer that is not set."""

    groups: list[tuple[Key, Group | None]] = []
    multisets: list[tuple[int, Key, Counts]] = []  # argument, group, new multiplicities
    timers: list[tuple[GroupTimer, bool]] = []  # whether it is set

    def __len__(self) -> int:
        entries = sum(len(counts) for _, _, counts in self.multisets)
        return len(self.groups) + entries + len(self.timers)


def gathered(entries: Iterable[tuple[int, Key, Value, int]]) -> list[tuple[int, Key, Counts]]:
    """Entries (argument, group, value, multiplicity) as changes of multisets; those of one group
    usually come together."""
    multisets: list[tuple[int, Key, Counts]] = []
    last: tuple[int, Key] | None = None
    counts: Counts = {}
    for argument, key, value, multiplicity in entries:
        if (argument, key) != last:
            last, counts = (argument, key), {}
            multisets.append((argument, key, counts))
        counts[value] = multiplicity
    return multisets


class Stamp(NamedTuple):
    """Which committed epoch a state has arrived at."""

    epoch: int
    uuid: str
    generation: int


class State(Protocol):
    """The state after a committed epoch, read-only."""

    def groups(self, keys: Sequence[Key]) -> list[Group | None]:
        """The accumulators of these groups, in the order asked."""
        ...

    def multisets(
        self, argument: int, asked: Sequence[tuple[Key, Mapping[Value, Any]]]
    ) -> list[Counts]:
        """The stored multiplicities of each asked group: those of the asked values, and maybe of
        more; what is not there is 0. To be read only."""
        ...

    def present(self, argument: int, key: Key, overlay: Mapping[Value, int]) -> PresentValues[Any]:
        """The values with a positive multiplicity under the overlay, which says new multiplicities
        (not differences) and hides the stored ones."""
        ...

    def entries(self, argument: int, key: Key) -> list[tuple[Value, int]]:
        """The stored entries of a group, in the order of their values, negative ones too."""
        ...

    def withheld(self) -> list[Key]:
        """The groups with changes that are withheld, in any order."""
        ...

    def due(self, clock: Clock, time: int) -> list[GroupTimer]:
        """The timers of a clock up to a time, in the order of their times."""
        ...

    def next_timer(self, clock: Clock, after: int | None = None) -> int | None:
        """The time of a clock's first timer, or of the first one later than `after`."""
        ...


def rank(value: Value) -> Rank:
    """What values of one column sort by: NULL first, NaN last; equal for any two NaN."""
    if value is None:
        return _NULL_RANK
    if type(value) is tuple:
        return (_ROW_RANK, tuple(map(rank, value)))
    if value != value:
        return _NAN_RANK
    return (1, value)


class MemoryState:
    """The state in plain dicts."""

    def __init__(self) -> None:
        self._groups: dict[Key, Group] = {}
        self._multisets: dict[tuple[int, Key], _Multiset] = {}
        self._withheld: set[Key] = set()
        self._timers = {clock: TimerQueue() for clock in Clock}

    def groups(self, keys: Sequence[Key]) -> list[Group | None]:
        return [self._groups.get(_hashable(key)) for key in keys]

    def multisets(
        self, argument: int, asked: Sequence[tuple[Key, Mapping[Value, Any]]]
    ) -> list[Counts]:
        found: list[Counts] = []
        for key, values in asked:
            multiset = self._multisets.get((argument, _hashable(key)))
            counts = {} if multiset is None else multiset.counts
            found.append({value: counts.get(rank(value), 0) for value in values})
        return found

    def present(self, argument: int, key: Key, overlay: Mapping[Value, int]) -> PresentValues[Rank]:
        multiset = self._multisets.get((argument, _hashable(key))) or _Multiset()

        def stored(descending: bool) -> Iterator[tuple[Rank, int]]:
            for seen in reversed(multiset.ranks) if descending else multiset.ranks:
                yield seen, multiset.counts[seen]

        return Merged(stored, {rank(value): times for value, times in overlay.items()}, _value)

    def entries(self, argument: int, key: Key) -> list[tuple[Value, int]]:
        multiset = self._multisets.get((argument, _hashable(key)))
        if multiset is None:
            return []
        return [(_value(seen), multiset.counts[seen]) for seen in multiset.ranks]

    def withheld(self) -> list[Key]:
        return list(self._withheld)

    def due(self, clock: Clock, time: int) -> list[GroupTimer]:
        return [
            GroupTimer(clock, timer.time, str(timer.namespace), timer.key)  # type: ignore[arg-type]
            for timer in self._timers[clock].upto(time)
        ]

    def next_timer(self, clock: Clock, after: int | None = None) -> int | None:
        queue = self._timers[clock]
        if after is None:
            return queue.next
        return next((timer.time for timer in queue.snapshot() if timer.time > after), None)

    def apply(self, upserts: Upserts) -> None:
        """Take in the changes of a committed epoch."""
        for key, group in upserts.groups:
            if group is None or group.held == CLOSED:
                self._groups.pop(_hashable(key), None)
                self._withheld.discard(_hashable(key))
                continue
            self._groups[_hashable(key)] = group
            if group.withheld:
                self._withheld.add(_hashable(key))
            else:
                self._withheld.discard(_hashable(key))
        for timer, is_set in upserts.timers:
            own = Timer(timer.time, _hashable(timer.key), timer.namespace)
            queue = self._timers[timer.clock]
            queue.register(*own) if is_set else queue.delete(*own)
        for argument, key, counts in upserts.multisets:
            place = (argument, _hashable(key))
            multiset = self._multisets.setdefault(place, _Multiset())
            for value, multiplicity in counts.items():
                multiset.put(rank(value), multiplicity)
            if not multiset.ranks:
                del self._multisets[place]


class _Multiset:
    """Multiplicities of one argument and group, with their values in order."""

    __slots__ = ("counts", "ranks")

    def __init__(self) -> None:
        self.counts: dict[Rank, int] = {}
        self.ranks: list[Rank] = []

    def put(self, seen: Rank, multiplicity: int) -> None:
        if multiplicity:
            if seen not in self.counts:
                insort(self.ranks, seen)
            self.counts[seen] = multiplicity
        elif self.counts.pop(seen, None) is not None:
            del self.ranks[bisect_left(self.ranks, seen)]


def _value(seen: Rank) -> Value:
    if seen[0] == _ROW_RANK:
        return tuple(map(_value, seen[1]))
    value: Value = math.nan if seen == _NAN_RANK else seen[1]
    return value


def _hashable(key: Key) -> Key:
    """The key with the one NaN that finds itself in a dict: another NaN object would not."""
    for value in key:
        if value != value:
            return tuple(math.nan if item != item else item for item in key)
    return key
