"""Records: how the hot state writes groups, multisets and timers, and reads them for a fold.

Upserts ──Snapshot.after──► Records: what LMDB holds under its keys once they are in the state
keys    ──Snapshot────────► Groups, multiplicities, present values of the state at one stamp

groups    order key of the group     -> packed Group
entries   argument, group, value     -> multisets: see multiset_records
timers    clock, time, namespace, group -> namespace and group in full: what is due comes first
withheld  order key of the group     -> the group in full, where its changes are withheld
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import lmdb
import msgspec

from jobs.core.aggregates.present_values import PresentValues
from jobs.core.fold.state import CLOSED, Counts, Group, GroupTimer, Key, Stamp, Upserts
from jobs.core.fold.timers import Clock
from jobs.core.values.change import Value
from jobs.core.values.exact_numbers import NAN
from jobs.core.values.order_key import bounded, encoder, value_encoder
from jobs.edge.state import timer_records
from jobs.edge.state.argument_records import Argument, Marks, checked
from jobs.edge.state.multiset_records import (
    KEY_BYTES_MAX,
    LargeMultiset,
    LargeValues,
    SmallValues,
    entry_key,
    multiplicity,
)
from schemas.types.sql_types import SqlType

LAYOUT_VERSION = 5

# Of an entry's key the group may take so much; the rest of the prefix is left for the value.
GROUP_PREFIX_BYTES_MAX = 200

# LMDB has no empty keys; this is the key of the one group of a query without GROUP BY.
ONLY_GROUP = b"\x01"


@dataclass(frozen=True, slots=True)
class Layout:
    """What the bytes of a state mean; another layout is another state."""

    plan: str  # fingerprint of the query's plan
    group_types: tuple[SqlType, ...]
    argument_types: tuple[SqlType, ...]
    array_results: bool = False  # MessagePack gives tuples back as lists
    version: int = LAYOUT_VERSION

    @property
    def fingerprint(self) -> str:
        types = "|".join(map(str, (*self.group_types, "", *self.argument_types)))
        text = f"{self.version}\n{self.plan}\n{types}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


# Integers beyond 64 bits (sums of doubles are such) travel as an extension of MessagePack.
WIDE_INTEGER = 1


def _wide(value: Any) -> Any:
    if type(value) is tuple:
        return tuple(map(_wide, value))
    if type(value) is not int or -(1 << 63) <= value < 1 << 64:
        return value
    size = (value.bit_length() >> 3) + 1
    return msgspec.msgpack.Ext(WIDE_INTEGER, value.to_bytes(size, "big", signed=True))


def _integer(code: int, data: memoryview) -> int:
    if code != WIDE_INTEGER:
        raise ValueError(f"extension {code} is not an integer")
    return int.from_bytes(data, "big", signed=True)


encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
_decode_group = msgspec.msgpack.Decoder(Group, ext_hook=_integer).decode
_decode_written = msgspec.msgpack.Decoder(list[bytes]).decode


def _with_arrays(data: bytes) -> Group:
    """A Group whose results may be arrays, with the one NaN in them."""
    group = _decode_group(data)
    result = tuple(_array(each) if type(each) is list else each for each in group.result)
    return msgspec.structs.replace(group, result=result)


def _array(items: list[Any]) -> tuple[Any, ...]:
    return tuple(NAN if item != item else item for item in items)


def packed(group: Group) -> bytes:
    """A Group as bytes; most say nothing but their first two fields."""
    try:
        if group.written is None and not group.held:
            return encode((group.cells, group.result))
        return encode(group)
    except OverflowError:
        cells = tuple(_wide(cell) for cell in group.cells)
        result = tuple(_wide(value) for value in group.result)
        return encode(msgspec.structs.replace(group, cells=cells, result=result))


class Records(msgspec.Struct, array_like=True):
    """What LMDB is to hold under its keys, None where a record goes: upserts as they are once the
    state before them is known."""

    groups: dict[bytes, bytes | None] = {}
    entries: dict[bytes, bytes | None] = {}
    timers: dict[bytes, bytes | None] = {}
    withheld: dict[bytes, bytes | None] = {}

    @property
    def kinds(self) -> tuple[dict[bytes, bytes | None], ...]:
        """In the order of `Databases`."""
        return self.groups, self.entries, self.timers, self.withheld

    def __len__(self) -> int:
        return sum(map(len, self.kinds))


class Databases(NamedTuple):
    """LMDB's databases, one for each kind of records."""

    groups: lmdb._Database
    entries: lmdb._Database
    timers: lmdb._Database
    withheld: lmdb._Database


decode_records = msgspec.msgpack.Decoder(Records).decode


class Keys:
    """The keys of a layout."""

    def __init__(self, layout: Layout) -> None:
        self._encode_group = encoder(layout.group_types)
        self.arguments = tuple(
            Argument(number, sql_type) for number, sql_type in enumerate(layout.argument_types)
        )

        self._values = tuple(map(value_encoder, layout.group_types))
        self._decoders = tuple(map(checked, layout.group_types))
        self.decode_group = _with_arrays if layout.array_results else _decode_group

    def timer(self, timer: GroupTimer) -> bytes:
        return timer_records.key(timer, self.group(timer.key))

    def written(self, key: Key) -> list[bytes]:
        """A group's values in full, for records whose keys may be cut."""
        return [encode(value) for encode, value in zip(self._values, key, strict=True)]

    def read(self, written: Sequence[bytes]) -> Key:
        return tuple(decode(value) for decode, value in zip(self._decoders, written, strict=True))

    def group(self, key: Key) -> bytes:
        return bounded(self._encode_group(key) or ONLY_GROUP, KEY_BYTES_MAX)

    def part(self, key: Key) -> bytes:
        """What stands for a group in the keys of its entries."""
        return bounded(self._encode_group(key), GROUP_PREFIX_BYTES_MAX)


class Snapshot:
    """The state at one stamp (a read transaction): an implementation of core's State."""

    def __init__(
        self,
        keys: Keys,
        txn: lmdb.Transaction[bytes],
        databases: Databases,
        stamp: Stamp | None,
    ) -> None:
        self.stamp = stamp
        self._keys = keys
        self._txn = txn
        self._databases = databases
        self._groups = txn.cursor(databases.groups)
        self._entries = txn.cursor(databases.entries)
        self._parts: dict[Key, bytes] = {}
        self._multisets: dict[bytes, dict[Any, int] | Marks] = {}  # small ones, marks of large ones
        self._asked: dict[bytes, Counts] = {}  # of large ones: multiplicities that were read
        # As the fold has asked for them; what it has found out is written with its changes.
        self._values: dict[bytes, SmallValues | LargeValues] = {}

    def groups(self, keys: Sequence[Key]) -> list[Group | None]:
        asked = list(map(self._keys.group, keys))
        found = dict(self._groups.getmulti(sorted(asked)))
        decode = self._keys.decode_group
        return [None if (data := found.get(key)) is None else decode(data) for key in asked]

    def multisets(
        self, argument: int, asked: Sequence[tuple[Key, Mapping[Value, Any]]]
    ) -> list[Counts]:
        of = self._keys.arguments[argument]
        starts = [self._start(of, key) for key, _ in asked]
        self._read(of, starts)
        found: list[Counts] = []
        large: list[tuple[Counts, Value, bytes]] = []
        for (_, values), start in zip(asked, starts, strict=True):
            multiset = self._multisets[start]
            if not isinstance(multiset, Marks):
                found.append(of.asked(multiset, values))
                continue
            counts = self._asked[start] = {}
            found.append(counts)
            large += ((counts, value, entry_key(start, of.orders[value])) for value in values)
        if large:
            stored = dict(self._entries.getmulti(sorted(entry for _, _, entry in large)))
            for counts, value, entry in large:
                data = stored.get(entry)
                counts[value] = 0 if data is None else multiplicity(entry, data)
        return found

    def _start(self, argument: Argument, key: Key) -> bytes:
        """The beginning of the keys of all entries of a group; asked for several times."""
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = self._keys.part(key)
        return argument.prefix + part

    def _multiset(self, argument: Argument, start: bytes) -> dict[Any, int] | Marks:
        if start not in self._multisets:
            self._read(argument, [start])
        return self._multisets[start]

    def _read(self, argument: Argument, starts: Iterable[bytes]) -> None:
        """Read the multisets that are one record each, and the marks of the others."""
        missing = sorted(set(starts).difference(self._multisets))
        stored = dict(self._entries.getmulti(missing))
        for start in missing:
            data = stored.get(start)
            self._multisets[start] = {} if data is None else argument.multiset(data)

    def after(self, upserts: Upserts) -> Records:
        """The records of the state once these upserts are in it.

        A multiset is one record while it is small, and an entry a value once it has grown: most
        have a few values, and those few are read and written at once.
        """
        groups = {
            self._keys.group(key): None if group is None or group.held == CLOSED else packed(group)
            for key, group in upserts.groups
        }
        changed: dict[bytes, tuple[Argument, Counts]] = {}
        for argument, key, counts in upserts.multisets:
            of = self._keys.arguments[argument]
            start = self._start(of, key)
            if start in changed:  # one that came in several parts
                counts = changed[start][1] | counts
            changed[start] = (of, counts)
        for each in self._keys.arguments:
            self._read(each, (at for at, (of, _) in changed.items() if of is each))
        entries: dict[bytes, bytes | None] = {}
        for start, (of, counts) in changed.items():
            values = self._values.get(start)
            if values is None or values.overlay is not counts:  # folded elsewhere
                values = self._values_under(of, start, counts)
            entries.update(values.records())
        timers = {
            self._keys.timer(timer): timer_records.encode(timer, self._keys.written(timer.key))
            if is_set
            else None
            for timer, is_set in upserts.timers
        }
        return Records(groups, entries, timers, self._withheld_after(upserts))

    def _withheld_after(self, upserts: Upserts) -> dict[bytes, bytes | None]:
        """The index of the withheld groups; most jobs have none, and pay nothing for it."""
        any_stored = self._txn.stat(self._databases.withheld)["entries"] > 0
        withheld: dict[bytes, bytes | None] = {}
        for key, group in upserts.groups:
            if group is not None and group.withheld:
                withheld[self._keys.group(key)] = encode(self._keys.written(key))
            elif any_stored or withheld:
                withheld[self._keys.group(key)] = None
        return withheld

    def withheld(self) -> list[Key]:
        with self._txn.cursor(self._databases.withheld) as cursor:
            return [self._keys.read(_decode_written(data)) for _, data in cursor]

    def due(self, clock: Clock, time: int) -> list[GroupTimer]:
        timers = []
        for at, data in self._timers(clock):
            if at > time:
                break
            namespace, written = timer_records.decode(data)
            timers.append(GroupTimer(clock, at, namespace, self._keys.read(written)))
        return timers

    def next_timer(self, clock: Clock, after: int | None = None) -> int | None:
        return next((at for at, _ in self._timers(clock, after)), None)

    def _timers(self, clock: Clock, after: int | None = None) -> Iterator[tuple[int, bytes]]:
        with self._txn.cursor(self._databases.timers) as cursor:
            yield from timer_records.walk(cursor, clock, after)

    def present(self, argument: int, key: Key, overlay: Mapping[Value, int]) -> PresentValues[Any]:
        of = self._keys.arguments[argument]
        start = self._start(of, key)
        values = self._values[start] = self._values_under(of, start, overlay)
        return values

    def _values_under(
        self, argument: Argument, start: bytes, overlay: Mapping[Value, int]
    ) -> SmallValues | LargeValues:
        multiset = self._multiset(argument, start)
        if not isinstance(multiset, Marks):
            return SmallValues(argument, start, multiset, overlay)
        stored = LargeMultiset(argument, start, self._entries)
        return LargeValues(stored, multiset, overlay, self._asked.get(start, {}))

    def entries(self, argument: int, key: Key) -> list[tuple[Value, int]]:
        of = self._keys.arguments[argument]
        start = self._start(of, key)
        multiset = self._multiset(of, start)
        places: Iterable[tuple[bytes, int]]
        if isinstance(multiset, Marks):
            places = LargeMultiset(of, start, self._entries).places()
        else:
            places = sorted(of.ordered(multiset))
        return [(of.value(place), times) for place, times in places]
