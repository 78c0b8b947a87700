"""Encode groups, multisets and timers as records of the hot state, and read them for a fold.

Upserts ──Snapshot.to_records──► Records: new values of LMDB's keys, None to delete a key
keys    ──Snapshot─────────────► groups, multiplicities, present values at one stamp

groups    order key of the group     -> packed Group
entries   argument, group, value     -> multisets: see multiset_records
timers    clock, time, namespace, group -> namespace and full group; due timers come first
withheld  order key of the group     -> the full group, if its changes are withheld
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

import lmdb
import msgspec

from jobs.core.aggregates.present_values import PresentValues
from jobs.core.fold.state import Clock, Counts, Group, GroupTimer, Key, Stamp, Upserts
from jobs.core.plan.tree import Plan
from jobs.core.values.change import Value
from jobs.core.values.exact_numbers import NAN
from jobs.core.values.order_key import encoder, shorten_key, value_encoder
from jobs.edge.state import timer_records
from jobs.edge.state.argument_records import Argument, Marks, make_decoder
from jobs.edge.state.multiset_records import (
    KEY_BYTES_MAX,
    LargeMultiset,
    LargeValues,
    SmallValues,
    decode_multiplicity,
    entry_key,
)
from schemas.limits import GROUP_PREFIX_BYTES_MAX
from schemas.types.sql_types import Kind, SqlType

LAYOUT_VERSION = 5


# LMDB has no empty keys; this is the key of the one group of a query without GROUP BY.
ONLY_GROUP = b"\x01"


@dataclass(frozen=True, slots=True)
class Layout:
    """The meaning of the bytes of a state; another layout needs another state."""

    plan: str  # fingerprint of the query's plan
    group_types: tuple[SqlType, ...]
    argument_types: tuple[SqlType, ...]
    array_results: bool = False  # MessagePack decodes tuples as lists
    version: int = LAYOUT_VERSION

    @classmethod
    def of(cls, plan: Plan) -> Layout:
        """Return the layout of the groups of a plan."""
        return cls(
            plan.fingerprint,
            tuple(each.type for each in plan.group),
            tuple(each.type for each in plan.arguments),
            array_results=any(kind.kind is Kind.ARRAY for _, kind in plan.kept_results),
        )

    @property
    def fingerprint(self) -> str:
        """A hash of the layout."""
        types = "|".join(map(str, (*self.group_types, "", *self.argument_types)))
        text = f"{self.version}\n{self.plan}\n{types}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


# A MessagePack extension for integers beyond 64 bits, such as sums of doubles.
WIDE_INTEGER = 1


def _pack_wide(value: Any) -> Any:
    if type(value) is tuple:
        return tuple(map(_pack_wide, value))
    if type(value) is not int or -(1 << 63) <= value < 1 << 64:
        return value
    size = (value.bit_length() >> 3) + 1
    return msgspec.msgpack.Ext(WIDE_INTEGER, value.to_bytes(size, "big", signed=True))


def _unpack_integer(code: int, data: memoryview) -> int:
    if code != WIDE_INTEGER:
        raise ValueError(f"extension {code} is not an integer")
    return int.from_bytes(data, "big", signed=True)


encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
decode_group = msgspec.msgpack.Decoder(Group, ext_hook=_unpack_integer).decode
_decode_list = msgspec.msgpack.Decoder(list[bytes]).decode


def _decode_with_arrays(data: bytes) -> Group:
    """Decode a Group whose results may be arrays, with the canonical NaN in them."""
    group = decode_group(data)
    result = tuple(_to_array(each) if type(each) is list else each for each in group.result)
    return msgspec.structs.replace(group, result=result)


def _to_array(items: list[Any]) -> tuple[Any, ...]:
    return tuple(NAN if item != item else item for item in items)


def pack_group(group: Group) -> bytes:
    """Encode a Group; most groups need only their first two fields."""
    try:
        if group.written is None and group.timer is None and not group.visibility:
            return encode((group.cells, group.result))
        return encode(group)
    except OverflowError:
        cells = tuple(_pack_wide(cell) for cell in group.cells)
        result = tuple(_pack_wide(value) for value in group.result)
        return encode(msgspec.structs.replace(group, cells=cells, result=result))


class Records(msgspec.Struct, array_like=True):
    """The new values of LMDB's keys, None to delete a key: upserts applied to a known state."""

    groups: dict[bytes, bytes | None] = {}
    entries: dict[bytes, bytes | None] = {}
    timers: dict[bytes, bytes | None] = {}
    withheld: dict[bytes, bytes | None] = {}

    @property
    def kinds(self) -> tuple[dict[bytes, bytes | None], ...]:
        """The records of each kind, in the order of `Databases`."""
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
    """Encodes and decodes the keys of a layout."""

    def __init__(self, layout: Layout) -> None:
        self._encode_group = encoder(layout.group_types)
        self.arguments = tuple(
            Argument(number, sql_type) for number, sql_type in enumerate(layout.argument_types)
        )

        self._values = tuple(map(value_encoder, layout.group_types))
        self._decoders = tuple(map(make_decoder, layout.group_types))
        self.decode_group = _decode_with_arrays if layout.array_results else decode_group

    def timer_key(self, timer: GroupTimer) -> bytes:
        return timer_records.encode_key(timer, self.group_key(timer.key))

    def timer_records(self, timers: Iterable[tuple[GroupTimer, bool]]) -> dict[bytes, bytes | None]:
        """Return the records of timers that are set or not."""
        return {
            self.timer_key(timer): timer_records.encode(timer, self.encode_values(timer.key))
            if is_set
            else None
            for timer, is_set in timers
        }

    def encode_values(self, key: Key) -> list[bytes]:
        """Return a group's full values, for records whose keys may be cut."""
        return [encode(value) for encode, value in zip(self._values, key, strict=True)]

    def decode_values(self, values: Sequence[bytes]) -> Key:
        """Return the group with these full values."""
        return tuple(decode(value) for decode, value in zip(self._decoders, values, strict=True))

    def group_key(self, key: Key) -> bytes:
        return shorten_key(self._encode_group(key) or ONLY_GROUP, KEY_BYTES_MAX)

    def entry_prefix(self, key: Key) -> bytes:
        """Return the part of an entry's key that identifies the group."""
        return shorten_key(self._encode_group(key), GROUP_PREFIX_BYTES_MAX)


class Snapshot:
    """Implements core's State by a read transaction: the state at one stamp."""

    def __init__(
        self, keys: Keys, txn: lmdb.Transaction[bytes], databases: Databases, stamp: Stamp | None
    ) -> None:
        self.stamp = stamp
        self._keys = keys
        self._txn = txn
        self._databases = databases
        self._groups = txn.cursor(databases.groups)
        self._entries = txn.cursor(databases.entries)
        self._parts: dict[Key, bytes] = {}
        self._multisets: dict[
            bytes, dict[Any, int] | Marks
        ] = {}  # values of small ones, marks of large ones
        self._counts_read: dict[bytes, Counts] = {}  # multiplicities read from large ones
        # The values that the fold has read; their new marks are written with its changes.
        self._values: dict[bytes, SmallValues | LargeValues] = {}

    def groups(self, keys: Sequence[Key]) -> list[Group | None]:
        stored = self.records(list(map(self._keys.group_key, keys)))
        decode = self._keys.decode_group
        return [None if data is None else decode(data) for data in stored]

    def records(self, group_keys: Sequence[bytes]) -> list[bytes | None]:
        stored = dict(self._groups.getmulti(sorted(group_keys)))
        return list(map(stored.get, group_keys))

    def walk(self) -> Iterator[bytes]:
        """Yield the record of every group."""
        with self._txn.cursor(self._databases.groups) as cursor:
            yield from cursor.iternext(keys=False)

    def multisets(
        self, argument: int, wanted: Sequence[tuple[Key, Mapping[Value, Any]]]
    ) -> list[Counts]:
        of = self._keys.arguments[argument]
        starts = [self._entry_prefix(of, key) for key, _ in wanted]
        self._read_multisets(of, starts)
        found: list[Counts] = []
        large: list[tuple[Counts, Value, bytes]] = []
        for (_, values), start in zip(wanted, starts, strict=True):
            multiset = self._multisets[start]
            if not isinstance(multiset, Marks):
                found.append(of.select(multiset, values))
                continue
            counts = self._counts_read[start] = {}
            found.append(counts)
            large += ((counts, value, entry_key(start, of.orders[value])) for value in values)
        if large:
            stored = dict(self._entries.getmulti(sorted(entry for _, _, entry in large)))
            for counts, value, entry in large:
                data = stored.get(entry)
                counts[value] = 0 if data is None else decode_multiplicity(entry, data)
        return found

    def _entry_prefix(self, argument: Argument, key: Key) -> bytes:
        """Return the prefix of the keys of a group's entries, from a cache."""
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = self._keys.entry_prefix(key)
        return argument.prefix + part

    def _multiset(self, argument: Argument, start: bytes) -> dict[Any, int] | Marks:
        if start not in self._multisets:
            self._read_multisets(argument, [start])
        return self._multisets[start]

    def _read_multisets(self, argument: Argument, starts: Iterable[bytes]) -> None:
        """Read the small multisets, which are one record each, and the marks of large ones."""
        missing = sorted(set(starts).difference(self._multisets))
        stored = dict(self._entries.getmulti(missing))
        for start in missing:
            data = stored.get(start)
            self._multisets[start] = {} if data is None else argument.multiset(data)

    def to_records(self, upserts: Upserts) -> Records:
        """Return the records that apply these upserts to the state.

        A small multiset is one record, and a large one has an entry per value. Most multisets have
        a few values, which are then read and written at once.
        """
        groups = {
            self._keys.group_key(key): pack_group(group)
            if group is not None and group.has_state
            else None
            for key, group in upserts.groups
        }
        changed: dict[bytes, tuple[Argument, Counts]] = {}
        for argument, key, counts in upserts.multisets:
            of = self._keys.arguments[argument]
            start = self._entry_prefix(of, key)
            if start in changed:  # the multiset came in several parts
                counts = changed[start][1] | counts
            changed[start] = (of, counts)
        for each in self._keys.arguments:
            self._read_multisets(each, (at for at, (of, _) in changed.items() if of is each))
        entries: dict[bytes, bytes | None] = {}
        for start, (of, counts) in changed.items():
            values = self._values.get(start)
            if values is None or values.overlay is not counts:  # another process folded it
                values = self._overlay_values(of, start, counts)
            entries.update(values.to_records())
        timers = self._keys.timer_records(upserts.timers)
        return Records(groups, entries, timers, self._index_withheld(upserts))

    def _index_withheld(self, upserts: Upserts) -> dict[bytes, bytes | None]:
        """Return the changes of the index of withheld groups; cheap for jobs that have none."""
        any_stored = self._txn.stat(self._databases.withheld)["entries"] > 0
        withheld: dict[bytes, bytes | None] = {}
        for key, group in upserts.groups:
            if group is not None and group.withheld:
                withheld[self._keys.group_key(key)] = encode(self._keys.encode_values(key))
            elif any_stored or withheld:
                withheld[self._keys.group_key(key)] = None
        return withheld

    def withheld(self) -> list[Key]:
        with self._txn.cursor(self._databases.withheld) as cursor:
            return [self._keys.decode_values(_decode_list(data)) for _, data in cursor]

    def due(self, clock: Clock, time: int) -> list[GroupTimer]:
        return list(takewhile(lambda timer: timer.time <= time, self.timers(clock)))

    def timers(self, clock: Clock) -> Iterator[GroupTimer]:
        """Yield the timers of a clock, due ones first."""
        for at, data in self._read_timers(clock):
            namespace, values = timer_records.decode(data)
            yield GroupTimer(clock, at, namespace, self._keys.decode_values(values))

    def count_timers(self) -> int:
        """Return the number of timers of all clocks."""
        return int(self._txn.stat(self._databases.timers)["entries"])

    def next_timer(self, clock: Clock, after: int | None = None) -> int | None:
        return next((at for at, _ in self._read_timers(clock, after)), None)

    def _read_timers(self, clock: Clock, after: int | None = None) -> Iterator[tuple[int, bytes]]:
        with self._txn.cursor(self._databases.timers) as cursor:
            yield from timer_records.read_timers(cursor, clock, after)

    def present(self, argument: int, key: Key, overlay: Mapping[Value, int]) -> PresentValues[Any]:
        of = self._keys.arguments[argument]
        start = self._entry_prefix(of, key)
        values = self._values[start] = self._overlay_values(of, start, overlay)
        return values

    def _overlay_values(
        self, argument: Argument, start: bytes, overlay: Mapping[Value, int]
    ) -> SmallValues | LargeValues:
        multiset = self._multiset(argument, start)
        if not isinstance(multiset, Marks):
            return SmallValues(argument, start, multiset, overlay)
        stored = LargeMultiset(argument, start, self._entries)
        return LargeValues(stored, multiset, overlay, self._counts_read.get(start, {}))

    def entries(self, argument: int, key: Key) -> list[tuple[Value, int]]:
        of = self._keys.arguments[argument]
        start = self._entry_prefix(of, key)
        multiset = self._multiset(of, start)
        value_keys: Iterable[tuple[bytes, int]]
        if isinstance(multiset, Marks):
            value_keys = LargeMultiset(of, start, self._entries).read_value_keys()
        else:
            value_keys = sorted(of.order_keys(multiset))
        return [(of.value(value_key), times) for value_key, times in value_keys]
