"""State: the groups that a fold reads, and the changes that an epoch makes to them.

    committed state ──► groups, multisets, present ──► fold of epoch E
          ▲                                                │
          └─────────── Upserts, once E is committed ◄──────┘

A group's accumulator is a `Group`. Aggregates that must survive retractions exactly (MIN, MAX)
also keep a multiset: (argument, group, value) -> multiplicity, in the order of the values, where
a multiplicity may be negative (the stream retracted more than it added). A fold keeps the changes
of its own epoch in an overlay; it never writes the state.

Timers are state too: a `GroupTimer` names the time of a clock at which a group has work. Under the
event clock, the changes of a group may be withheld until the bundle ends.

Replays and property tests use `MemoryState`; the hot state stores the same on disk.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import msgspec

from jobs.core.aggregates.present_values import MergedValues, PresentValues
from jobs.core.fold.visibility import WITHHELD, WITHOUT_ROW, Visibility
from jobs.core.values.change import Value

Key = tuple[Value, ...]
Rank = tuple[int, Any]
Counts = dict[Value, int]  # multiplicities by value

_NULL_RANK: Rank = (0, None)
_NAN_RANK: Rank = (2, None)
_ROW_RANK = 3


class Group(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The accumulator of a group: `cells[0]` is the row count; integers may be of any size."""

    cells: tuple[Any, ...]
    result: tuple[Any, ...]  # the values last emitted; NULLs if none were
    visibility: Visibility = Visibility.SHOWN
    written: int | None = None  # under a TTL: the processing time of the last write
    timer: int | None = None  # of its TTL; without a TTL that of its classes

    @property
    def class_timer(self) -> int | None:
        """The first timer of its operators' classes; under a TTL it is not stored."""
        return self.timer if self.written is None else None

    @property
    def withheld(self) -> bool:
        """Whether the group has changes that are not emitted yet."""
        return self.visibility in WITHHELD

    @property
    def has_state(self) -> bool:
        """Whether the state keeps the group; of a closed group only the table keeps the result."""
        return self.visibility is not Visibility.CLOSED

    @property
    def has_row(self) -> bool:
        """Whether readers of the changelog see a row of the group."""
        return self.visibility not in WITHOUT_ROW


class Clock(StrEnum):
    """The clock of a timer: processing time, or watermarks."""

    PROCESSING = "processing"
    EVENT = "event"


class GroupTimer(NamedTuple):
    """The time of a clock at which a group has work; `namespace` names the kind of work."""

    clock: Clock
    time: int
    namespace: str
    key: Key


class Upserts(msgspec.Struct, gc=False):
    """The changes of an epoch to the state.

    A group that is None, an entry with multiplicity 0 and a timer that is not set are deleted.
    """

    groups: list[tuple[Key, Group | None]] = []
    multisets: list[tuple[int, Key, Counts]] = []  # argument, group, new multiplicities
    timers: list[tuple[GroupTimer, bool]] = []  # whether it is set

    def __len__(self) -> int:
        entries = sum(len(counts) for _, _, counts in self.multisets)
        return len(self.groups) + entries + len(self.timers)


def gather_multisets(
    entries: Iterable[tuple[int, Key, Value, int]],
) -> list[tuple[int, Key, Counts]]:
    """Return entries (argument, group, value, multiplicity) as changes of multisets.

    Entries of one group should be adjacent.
    """
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
    """The committed epoch that a state contains."""

    epoch: int
    uuid: str
    generation: int


class State(Protocol):
    """The state after a committed epoch, read-only."""

    def groups(self, keys: Sequence[Key]) -> list[Group | None]:
        """Return the accumulators of these groups, in the order of `keys`."""
        ...

    def multisets(
        self, argument: int, wanted: Sequence[tuple[Key, Mapping[Value, Any]]]
    ) -> list[Counts]:
        """Return the stored multiplicities of the wanted values of each group, read-only.

        The result may contain more values; a missing value has multiplicity 0.
        """
        ...

    def present(self, argument: int, key: Key, overlay: Mapping[Value, int]) -> PresentValues[Any]:
        """Return the values with a positive multiplicity.

        `overlay` has new multiplicities (not differences), which replace the stored ones.
        """
        ...

    def entries(self, argument: int, key: Key) -> list[tuple[Value, int]]:
        """Return the stored entries of a group in the order of their values, negative ones too."""
        ...

    def withheld(self) -> list[Key]:
        """Return the groups with withheld changes, in any order."""
        ...

    def due(self, clock: Clock, time: int) -> list[GroupTimer]:
        """Return the timers of a clock up to a time, in the order of their times."""
        ...

    def next_timer(self, clock: Clock, after: int | None = None) -> int | None:
        """Return the time of a clock's first timer, or of its first timer later than `after`."""
        ...


def rank(value: Value) -> Rank:
    """Return the sort key of a value: NULL first, NaN last; equal for any two NaN."""
    if value is None:
        return _NULL_RANK
    if type(value) is tuple:
        return (_ROW_RANK, tuple(map(rank, value)))
    if value != value:
        return _NAN_RANK
    return (1, value)


class MemoryState:
    """The state in dicts, in memory."""

    def __init__(self) -> None:
        self._groups: dict[Key, Group] = {}
        self._multisets: dict[tuple[int, Key], _Multiset] = {}
        self._withheld: set[Key] = set()
        self._timers = {clock: TimerQueue() for clock in Clock}

    def groups(self, keys: Sequence[Key]) -> list[Group | None]:
        return [self._groups.get(_hashable(key)) for key in keys]

    def multisets(
        self, argument: int, wanted: Sequence[tuple[Key, Mapping[Value, Any]]]
    ) -> list[Counts]:
        found: list[Counts] = []
        for key, values in wanted:
            multiset = self._multisets.get((argument, _hashable(key)))
            counts = {} if multiset is None else multiset.counts
            found.append({value: counts.get(rank(value), 0) for value in values})
        return found

    def present(self, argument: int, key: Key, overlay: Mapping[Value, int]) -> PresentValues[Rank]:
        multiset = self._multisets.get((argument, _hashable(key))) or _Multiset()

        def list_stored(descending: bool) -> Iterator[tuple[Rank, int]]:
            for sort_key in reversed(multiset.ranks) if descending else multiset.ranks:
                yield sort_key, multiset.counts[sort_key]

        return MergedValues(
            list_stored, {rank(value): times for value, times in overlay.items()}, _value
        )

    def entries(self, argument: int, key: Key) -> list[tuple[Value, int]]:
        multiset = self._multisets.get((argument, _hashable(key)))
        if multiset is None:
            return []
        return [(_value(sort_key), count) for sort_key, count in multiset.items()]

    def withheld(self) -> list[Key]:
        return list(self._withheld)

    def due(self, clock: Clock, time: int) -> list[GroupTimer]:
        return self._timers[clock].list_due(time)

    def next_timer(self, clock: Clock, after: int | None = None) -> int | None:
        return self._timers[clock].next_time(after)

    def apply(self, upserts: Upserts) -> None:
        """Apply the changes of a committed epoch."""
        for key, group in upserts.groups:
            if group is None or not group.has_state:
                self._groups.pop(_hashable(key), None)
                self._withheld.discard(_hashable(key))
                continue
            self._groups[_hashable(key)] = group
            if group.withheld:
                self._withheld.add(_hashable(key))
            else:
                self._withheld.discard(_hashable(key))
        for timer, is_set in upserts.timers:
            queue = self._timers[timer.clock]
            own = timer._replace(key=_hashable(timer.key))
            queue.register(own) if is_set else queue.delete(own)
        for argument, key, counts in upserts.multisets:
            multiset_key = (argument, _hashable(key))
            multiset = self._multisets.setdefault(multiset_key, _Multiset())
            for value, multiplicity in counts.items():
                multiset.put(rank(value), multiplicity)
            if not multiset.ranks:
                del self._multisets[multiset_key]


class TimerQueue:
    """The timers of one clock, in the order of their times, then of their registration."""

    __slots__ = ("_numbers", "_order", "_registered")

    def __init__(self) -> None:
        self._numbers: dict[GroupTimer, int] = {}  # of its registration
        self._order: list[tuple[int, int, GroupTimer]] = []
        self._registered = 0

    def register(self, timer: GroupTimer) -> None:
        if timer not in self._numbers:
            self._numbers[timer] = self._registered
            insort(self._order, (timer.time, self._registered, timer))
            self._registered += 1

    def delete(self, timer: GroupTimer) -> None:
        number = self._numbers.pop(timer, None)
        if number is not None:
            del self._order[bisect_left(self._order, (timer.time, number))]

    def list_due(self, time: int) -> list[GroupTimer]:
        """Return the timers up to and at `time`, without removing them."""
        return [timer for _, _, timer in self._order[: self._count_until(time)]]

    def next_time(self, after: int | None = None) -> int | None:
        """Return the time of the first timer, or of the first later than `after`."""
        first = 0 if after is None else self._count_until(after)
        return self._order[first][0] if first < len(self._order) else None

    def _count_until(self, time: int) -> int:
        return bisect_left(self._order, (time + 1,))


class _Multiset:
    """The multiplicities of one argument and group, by the sort keys of their values."""

    __slots__ = ("counts", "ranks")

    def __init__(self) -> None:
        self.counts: dict[Rank, int] = {}
        self.ranks: list[Rank] = []

    def items(self) -> Iterator[tuple[Rank, int]]:
        return ((key, self.counts[key]) for key in self.ranks)

    def put(self, key: Rank, multiplicity: int) -> None:
        if multiplicity:
            if key not in self.counts:
                insort(self.ranks, key)
            self.counts[key] = multiplicity
        elif self.counts.pop(key, None) is not None:
            del self.ranks[bisect_left(self.ranks, key)]


def _value(key: Rank) -> Value:
    if key[0] == _ROW_RANK:
        return tuple(map(_value, key[1]))
    value: Value = math.nan if key == _NAN_RANK else key[1]
    return value


def _hashable(key: Key) -> Key:
    """Return the key with `math.nan` for each NaN, since other NaN objects are not found."""
    for value in key:
        if value != value:
            return tuple(math.nan if item != item else item for item in key)
    return key
