"""The hot state: the committed state of one bucket, in an LMDB environment on local disk.

    <directory>/            mode 0700
      identity              layout and boot for which the rest was written; read before the rest
      bucket.lock           an OS lock: one writer, waited for with a limit
      data.mdb, lock.mdb    LMDB:  stamp    -> epoch, uuid, generation, identity
                                   groups:  order key of the group   -> packed Group
                                   entries: argument, group          -> a small multiset, or that
                                            argument, group, value      it is spilled: in order,
                                                                        one multiplicity each

It is a cache of the table: it holds committed epochs only, it is brought forward by applying what
later epochs committed (`catch_up`), and whatever looks wrong is deleted and built again. So
nothing is synced to disk; the boot id in the identity stands for "no power was lost since".
Damage inside a page whose frame is sound is not detected: there are no checksums.

LMDB allows one open environment per process and file, and none across a fork: `opened` keeps them.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import lmdb
import msgspec

from jobs.core.change import Value
from jobs.core.order_key import (
    ValueDecoder,
    ValueEncoder,
    bounded,
    encoder,
    value_decoder,
    value_encoder,
)
from jobs.core.state import Counts, Group, Key, Stamp, Upserts, first_present, rank
from jobs.edge.columns import WORD_DIGITS_MAX
from schemas import limits
from schemas.types import BIGINT, Kind, SqlType

LAYOUT_VERSION = 3
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

# Of an entry's key the group may take so much; the rest of the prefix is left for the value.
GROUP_PREFIX_BYTES_MAX = 200
KEY_BYTES_MAX = limits.KEY_PREFIX_BYTES_MAX

STAMP_KEY = b"stamp"
# LMDB has no empty keys; this is the key of the one group of a query without GROUP BY.
ONLY_GROUP = b"\x01"
PAST_EVERY_VALUE = b"\xff"

# With a cold page cache 14,000 groups of a 160 MB state took 0.25 s with readahead, 0.8 s without;
# 500 groups 0.15 s against 0.1 s.
READAHEAD = True

# A lock is tried again after this long.
LOCK_POLL_SECONDS = 0.005
# How often a task looks again at a state that other processes keep moving.
LOOKS_MAX = 5

DAMAGE = (
    lmdb.CorruptedError,
    lmdb.InvalidError,
    lmdb.PageNotFoundError,
    lmdb.VersionMismatchError,
    lmdb.PanicError,
    lmdb.IncompatibleError,
    lmdb.BadTxnError,
    lmdb.NotFoundError,
    msgspec.DecodeError,
)

# What an epoch changed, as upserts or as the records that `remember` made of them.
Steps = Iterable[tuple[Stamp, "Upserts | _Records"]]


class HotStateError(Exception):
    """The hot state cannot be used; the message says why and what to do."""


class HotStateDamaged(HotStateError):
    """It was damaged and has been deleted; the next `catch_up` builds it again."""


class BucketLocked(HotStateError):
    """Another process kept the bucket for longer than a task waits."""


class StampMoved(HotStateError):
    """Another process has changed the state since it was looked at."""


class ZombieTask(Exception):
    """The state is ahead of this task's base: a successor is at work, nothing may be written."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What the bytes of a state mean; another layout is another state."""

    plan: str  # fingerprint of the query's plan
    group_types: tuple[SqlType, ...]
    argument_types: tuple[SqlType, ...]
    version: int = LAYOUT_VERSION

    @property
    def fingerprint(self) -> str:
        types = "|".join(map(str, (*self.group_types, "", *self.argument_types)))
        text = f"{self.version}\n{self.plan}\n{types}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class _StampRecord(msgspec.Struct, frozen=True, array_like=True):
    epoch: int
    uuid: str
    generation: int
    identity: str


class _LongEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An entry whose key is cut: the multiplicity and the whole order key of its value."""

    multiplicity: int
    value: bytes


# Integers beyond 64 bits (sums of doubles are such) travel as an extension of MessagePack.
WIDE_INTEGER = 1


def _wide(value: Any) -> Any:
    if type(value) is not int or -(1 << 63) <= value < 1 << 64:
        return value
    size = (value.bit_length() >> 3) + 1
    return msgspec.msgpack.Ext(WIDE_INTEGER, value.to_bytes(size, "big", signed=True))


def _integer(code: int, data: memoryview) -> int:
    if code != WIDE_INTEGER:
        raise ValueError(f"extension {code} is not an integer")
    return int.from_bytes(data, "big", signed=True)


_encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
_decode_group = msgspec.msgpack.Decoder(Group, ext_hook=_integer).decode
_decode_multiplicity = msgspec.msgpack.Decoder(int).decode
_decode_long = msgspec.msgpack.Decoder(_LongEntry).decode
_REDO = "redo-"
SPILLED = _encode(None)  # in the place of a multiset that has an entry for each value
_decode_stamp = msgspec.msgpack.Decoder(_StampRecord).decode


def packed(group: Group) -> bytes:
    """A Group as bytes."""
    try:
        return _encode(group)
    except OverflowError:
        cells = tuple(_wide(cell) for cell in group.cells)
        return _encode(Group(cells, tuple(_wide(value) for value in group.result)))


def _checked(sql_type: SqlType) -> ValueDecoder:
    """A decoder that calls what it cannot read damage."""
    decode = value_decoder(sql_type)

    def value(key: bytes) -> Value:
        try:
            return decode(key)
        except (ValueError, IndexError, struct.error) as error:
            raise lmdb.CorruptedError(f"{key!r} is not the key of a {sql_type}: {error}") from error

    return value


class _Records(msgspec.Struct, array_like=True):
    """What LMDB is to hold under its keys, None where a record goes: upserts as they are once the
    state before them is known."""

    groups: dict[bytes, bytes | None] = {}
    entries: dict[bytes, bytes | None] = {}


_decode_records = msgspec.msgpack.Decoder(_Records).decode


class _Memo(dict[Value, bytes]):
    """Order keys of an argument's values: most columns have few distinct ones."""

    def __init__(self, encode: ValueEncoder) -> None:
        self._encode = encode

    def __missing__(self, value: Value) -> bytes:
        if len(self) >= limits.MEMO_ENTRIES_MAX:
            self.clear()
        key = self._encode(value)
        self[value] = key
        return key


_WORDS = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ)


class _Argument:
    """How the values of one argument are written.

    In a small multiset they stand as they are where msgspec reads back what it wrote, and as
    their order keys where it does not (NaN, wide decimals).
    """

    def __init__(self, number: int, sql_type: SqlType) -> None:
        self.prefix = value_encoder(BIGINT)(number)
        self.orders: Mapping[Value, bytes] = _Memo(value_encoder(sql_type))
        self.value = _checked(sql_type)
        as_it_is = _form(sql_type)
        self.plain = as_it_is is not None
        kind: Any = bytes if as_it_is is None else as_it_is | None
        self.small = msgspec.msgpack.Decoder(dict[kind, int]).decode

    def written(self, counts: Counts) -> dict[Any, int]:
        """Multiplicities under what stands for their values in a small multiset."""
        if self.plain:
            return counts
        orders = self.orders
        return {orders[value]: count for value, count in counts.items()}

    def ordered(self, small: dict[Any, int]) -> Iterator[tuple[bytes, int]]:
        """A small multiset under the order keys of its values."""
        for written, count in small.items():
            yield (self.orders[written] if self.plain else written), count

    def asked(self, small: dict[Any, int], values: Iterable[Value]) -> Counts:
        """The multiplicities of these values at least."""
        if self.plain:
            return small
        orders = self.orders
        return {value: small.get(orders[value], 0) for value in values}


def _form(sql_type: SqlType) -> type[int] | type[str] | None:
    """What a value is that MessagePack gives back as it was; None where it might not."""
    if sql_type.kind is Kind.STRING or sql_type.textual_time:
        return str
    if sql_type.kind is Kind.DECIMAL:
        return int if (sql_type.precision or 0) <= WORD_DIGITS_MAX else None
    return int if sql_type.integer or sql_type.kind in _WORDS else None


class _Keys:
    """The keys of a layout."""

    def __init__(self, layout: Layout) -> None:
        self._encode_group = encoder(layout.group_types)
        self.arguments = tuple(
            _Argument(number, sql_type) for number, sql_type in enumerate(layout.argument_types)
        )

    def group(self, key: Key) -> bytes:
        return bounded(self._encode_group(key) or ONLY_GROUP, KEY_BYTES_MAX)

    def part(self, key: Key) -> bytes:
        """What stands for a group in the keys of its entries."""
        return bounded(self._encode_group(key), GROUP_PREFIX_BYTES_MAX)


class Snapshot:
    """The state at one stamp (a read transaction): an implementation of core's State."""

    def __init__(
        self,
        keys: _Keys,
        txn: lmdb.Transaction[bytes],
        groups: lmdb._Database,
        entries: lmdb._Database,
        stamp: Stamp | None,
    ) -> None:
        self.stamp = stamp
        self._keys = keys
        self._groups = txn.cursor(groups)
        self._entries = txn.cursor(entries)
        self._parts: dict[Key, bytes] = {}
        self._small: dict[bytes, dict[Any, int] | None] = {}

    def groups(self, keys: Sequence[Key]) -> list[Group | None]:
        asked = list(map(self._keys.group, keys))
        found = dict(self._groups.getmulti(sorted(asked)))
        return [None if (data := found.get(key)) is None else _decode_group(data) for key in asked]

    def multisets(
        self, argument: int, asked: Sequence[tuple[Key, Mapping[Value, Any]]]
    ) -> list[Counts]:
        of = self._keys.arguments[argument]
        starts = [self._start(of, key) for key, _ in asked]
        self._read_small(of, starts)
        found: list[Counts] = []
        spilled: list[tuple[Counts, Value, bytes]] = []
        for (_, values), start in zip(asked, starts, strict=True):
            small = self._small[start]
            if small is not None:
                found.append(of.asked(small, values))
                continue
            counts: Counts = {}
            found.append(counts)
            spilled += ((counts, value, _entry_key(start, of.orders[value])) for value in values)
        if spilled:
            stored = dict(self._entries.getmulti(sorted(entry for _, _, entry in spilled)))
            for counts, value, entry in spilled:
                data = stored.get(entry)
                counts[value] = 0 if data is None else _multiplicity(entry, data)
        return found

    def _start(self, argument: _Argument, key: Key) -> bytes:
        """The beginning of the keys of all entries of a group; asked for several times."""
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = self._keys.part(key)
        return argument.prefix + part

    def _small_multiset(self, argument: _Argument, key: Key) -> dict[Any, int] | None:
        start = self._start(argument, key)
        if start not in self._small:
            self._read_small(argument, [start])
        return self._small[start]

    def _read_small(self, argument: _Argument, starts: Iterable[bytes]) -> None:
        """Read the multisets that are one record each; None stands for one that is spilled."""
        missing = sorted(set(starts).difference(self._small))
        stored = dict(self._entries.getmulti(missing))
        for start in missing:
            data = stored.get(start)
            if data is None:
                self._small[start] = {}
            else:
                self._small[start] = None if data == SPILLED else argument.small(data)

    def after(self, upserts: Upserts) -> _Records:
        """The records of the state once these upserts are in it.

        A multiset is one record while it is small, and an entry a value once it has grown: most
        have a few values, and those few are read and written at once.
        """
        groups = {
            self._keys.group(key): None if group is None else packed(group)
            for key, group in upserts.groups
        }
        changed: dict[bytes, tuple[_Argument, dict[Any, int]]] = {}
        for argument, key, counts in upserts.multisets:
            of = self._keys.arguments[argument]
            start = self._start(of, key)
            written = of.written(counts)
            if start in changed:  # one that came in several parts
                written = changed[start][1] | written
            changed[start] = (of, written)
        for each in self._keys.arguments:
            self._read_small(each, (at for at, (of, _) in changed.items() if of is each))
        entries: dict[bytes, bytes | None] = {}
        for start, (of, written) in changed.items():
            small = self._small[start]
            if small is None:
                entries.update(_spilled(start, of.ordered(written)))
                continue
            small = small | written
            if 0 in small.values():
                small = {value: count for value, count in small.items() if count}
            record = _encode(small)
            if len(record) > limits.HOT_STATE_SMALL_MULTISET_BYTES:
                entries.update(_spilled(start, of.ordered(small)))
                record = SPILLED
            entries[start] = record if small else None
        return _Records(groups, entries)

    def extreme(
        self, argument: int, key: Key, overlay: Mapping[Value, int], *, largest: bool
    ) -> Value | None:
        of = self._keys.arguments[argument]
        small = self._small_multiset(of, key)
        if small is not None and of.plain:
            counts = {**small, **overlay}
            present = [value for value, count in counts.items() if count > 0]
            return (max if largest else min)(present, key=rank, default=None)
        stored = self._walk(argument, key, descending=largest)
        return first_present(stored, overlay, largest=largest)

    def entries(self, argument: int, key: Key) -> list[tuple[Value, int]]:
        return list(self._walk(argument, key, descending=False))

    def _walk(self, argument: int, key: Key, *, descending: bool) -> Iterator[tuple[Value, int]]:
        """The entries of a group from one end. Cut keys that begin alike come in no order of
        theirs, so that such a run is read whole and sorted by the full values."""
        of = self._keys.arguments[argument]
        decode = of.value
        start = self._start(of, key)
        small = self._small_multiset(of, key)
        if small is not None:
            yield from _in_order(list(of.ordered(small)), decode, descending=descending)
            return
        run: list[tuple[bytes, int]] = []
        run_prefix = b""
        for entry, data in self._records(start, descending=descending):
            cut = len(entry) > KEY_BYTES_MAX
            if run and not (cut and entry.startswith(run_prefix)):
                yield from _in_order(run, decode, descending=descending)
                run = []
            if cut:
                long = _decode_long(data)
                run.append((long.value, long.multiplicity))
                run_prefix = entry[:KEY_BYTES_MAX]
            else:
                yield decode(entry[len(start) :]), _decode_multiplicity(data)
        yield from _in_order(run, decode, descending=descending)

    def _records(self, start: bytes, *, descending: bool) -> Iterator[tuple[bytes, bytes]]:
        cursor = self._entries
        if not descending:
            more = cursor.set_range(start)
            step = cursor.next
        else:
            past = cursor.set_range(start + PAST_EVERY_VALUE)
            more = cursor.prev() if past else cursor.last()
            step = cursor.prev
        while more:
            entry, data = cursor.item()
            if not entry.startswith(start):
                return
            if entry != start:  # that one says that the multiset is spilled
                yield entry, data
            more = step()


def _in_order(
    run: list[tuple[bytes, int]], decode: Callable[[bytes], Value], *, descending: bool
) -> Iterator[tuple[Value, int]]:
    run.sort(reverse=descending)
    for value, multiplicity in run:
        yield decode(value), multiplicity


def _multiplicity(entry: bytes, data: bytes) -> int:
    if len(entry) > KEY_BYTES_MAX:
        return _decode_long(data).multiplicity
    return _decode_multiplicity(data)


class HotState:
    """The hot state of one bucket. Open it with `opened`, or once in a process with `open`."""

    def __init__(
        self, directory: Path, layout: Layout, *, map_bytes: int, lock_seconds: float
    ) -> None:
        self.directory = directory
        self.layout = layout
        self._map_bytes = map_bytes
        self._lock_seconds = lock_seconds
        self._locks_held = False
        self._keys = _Keys(layout)
        self._data = directory / "data.mdb"
        self._identity = f"{layout.fingerprint} {BOOT_ID.read_text().strip()}"
        self._env: lmdb.Environment | None = None
        self._inode = 0

    @classmethod
    def open(
        cls,
        directory: Path,
        layout: Layout,
        *,
        map_bytes: int = limits.HOT_STATE_MAP_BYTES,
        lock_seconds: float = limits.BUCKET_LOCK_SECONDS_MAX,
    ) -> HotState:
        """Open what is there if it is sound and of this layout and boot; else start empty."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
        state = cls(directory, layout, map_bytes=map_bytes, lock_seconds=lock_seconds)
        with state._locked():
            state._open()
        return state

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None

    @property
    def stamp(self) -> Stamp | None:
        """Where the state is now; None while it is empty or half built."""
        if not self.in_place:
            with self._locked():  # opens what is in place
                pass
        try:
            with self._transaction() as txn:
                return self._read_stamp(txn)
        except DAMAGE:
            self.reset()
            return None

    @property
    def in_place(self) -> bool:
        """Whether the open files are still those of the directory: another process that found
        damage, or a person, may have deleted them."""
        try:
            return self._env is not None and self._data.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    @contextmanager
    def view(self, base: Stamp | None = None) -> Iterator[Snapshot]:
        """A snapshot to fold on; with `base`, only if it is exactly that.

        The process must not advance the state meanwhile: a growing map ends its snapshots.
        """
        with self._watched(), self._transaction() as txn:
            stamp = self._read_stamp(txn)
            if base is not None and stamp != base:
                raise StampMoved(f"{self.directory}: the state is at {stamp}, not at {base}")
            yield Snapshot(self._keys, txn, self._groups, self._entries, stamp)

    def advance(self, steps: Steps, *, since: Stamp | None) -> None:
        """Apply committed epochs in order and take the last one's stamp.

        `since` is the stamp that the steps follow; a state that is elsewhere by now raises
        StampMoved and stays as it is. None builds from nothing: then there is no stamp until all
        is in, because the parts of a rebuild are no epochs.
        """
        if since is None:
            self.rebuild(steps, since=None)
            return
        with self._locked(), self._watched():
            at = since
            for last, parts in self._chunks(steps, whole_epochs=True):
                self._commit(parts, at, last)
                at = last

    def rebuild(self, steps: Steps, *, since: Stamp | None) -> None:
        """Delete everything and apply the whole state, unless it has moved from `since`."""
        with self._locked(), self._watched():
            self._require(self.stamp, since)
            if not self._empty:
                self.reset()
            reached: Stamp | None = None
            for last, parts in self._chunks(steps, whole_epochs=False):
                self._commit(parts, None, None)
                reached = last
            self._commit((), None, reached)

    def reset(self) -> None:
        """Delete everything and start empty."""
        with self._locked():
            self._delete()
            self._open()

    def remember(self, epoch: int, uuid: str, upserts: Upserts, view: Snapshot) -> None:
        """Keep what an epoch, folded on this view, will change once it is committed, ready to be
        applied here.

        It is no part of the state: `recalled` gives it only to who knows the epoch's stamp to be
        on the committed line, and without it the same upserts are read from the table.
        """
        records = view.after(upserts)
        for old in self.directory.glob(f"{_REDO}*"):
            old.unlink(missing_ok=True)
        path = self._redo(epoch, uuid)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(_encode(records))
        unfinished.rename(path)

    def recalled(self, stamp: Stamp) -> _Records | None:
        """What `remember` kept of a committed epoch, if this is the host that folded it."""
        try:
            return _decode_records(self._redo(stamp.epoch, stamp.uuid).read_bytes())
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _redo(self, epoch: int, uuid: str) -> Path:
        """The records fit these files only: a state built anew may hold the same otherwise."""
        place = f"{self.layout.fingerprint}-{self._inode}"
        return self.directory / f"{_REDO}{epoch}-{uuid}-{place}"

    def bytes_used(self) -> int:
        """Disk space of the state."""
        return self._data.stat().st_blocks * 512

    def _chunks(
        self, steps: Steps, *, whole_epochs: bool
    ) -> Iterator[tuple[Stamp, list[Upserts | _Records]]]:
        """Steps as many together as one transaction should take."""
        parts: list[Upserts | _Records] = []
        count = 0
        last: Stamp | None = None
        for stamp, step in steps:
            full = count >= limits.HOT_STATE_CHUNK_RECORDS
            if last is not None and full and not (whole_epochs and stamp == last):
                yield last, parts
                parts, count = [], 0
            if isinstance(step, _Records):
                parts.append(step)
            else:
                if not parts or isinstance(parts[-1], _Records):
                    parts.append(Upserts([], []))
                together = parts[-1]
                assert isinstance(together, Upserts)
                together.groups += step.groups
                together.multisets += step.multisets
            count += _size(step)
            last = stamp
        if last is not None:
            yield last, parts

    def _commit(
        self, parts: Sequence[Upserts | _Records], before: Stamp | None, after: Stamp | None
    ) -> None:
        """One write transaction; with a larger map and once more when the map is full."""
        while True:
            try:
                with self._transaction(write=True) as txn:
                    self._require(self._read_stamp(txn), before)
                    for part in parts:
                        if isinstance(part, Upserts):
                            view = Snapshot(self._keys, txn, self._groups, self._entries, before)
                            part = view.after(part)
                        _write(txn, self._groups, part.groups)
                        _write(txn, self._entries, part.entries)
                    if after is not None:
                        txn.put(STAMP_KEY, _encode(_StampRecord(*after, self._identity)))
                break
            except lmdb.MapFullError:
                env = self._environment
                env.set_mapsize(2 * env.info()["map_size"])

    @property
    def _empty(self) -> bool:
        """Whether nothing was ever put into the files, not even the part of a rebuild."""
        with self._transaction() as txn:
            databases = (self._groups, self._entries)
            return txn.get(STAMP_KEY) is None and not any(
                txn.stat(database)["entries"] for database in databases
            )

    def _require(self, found: Stamp | None, expected: Stamp | None) -> None:
        if found != expected:
            raise StampMoved(f"{self.directory}: the state is at {found}, not at {expected}")

    def _read_stamp(self, txn: lmdb.Transaction[bytes]) -> Stamp | None:
        data = txn.get(STAMP_KEY)
        if data is None:
            return None
        record = _decode_stamp(data)
        if record.identity != self._identity:
            return None
        return Stamp(record.epoch, record.uuid, record.generation)

    @property
    def _environment(self) -> lmdb.Environment:
        if self._env is None:
            raise HotStateError(f"{self.directory}: the hot state is closed")
        return self._env

    @contextmanager
    def _transaction(self, *, write: bool = False) -> Iterator[lmdb.Transaction[bytes]]:
        env = self._environment
        try:
            txn = env.begin(write=write)
        except lmdb.MapResizedError:  # another process has enlarged the map
            env.set_mapsize(0)
            txn = env.begin(write=write)
        with txn:
            yield txn

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Errors of LMDB in our words; damage deletes the state on the way out."""
        try:
            yield
        except DAMAGE as error:
            self.reset()
            raise HotStateDamaged(
                f"{self.directory}: damaged ({error}); deleted, to be built again from the table"
            ) from error
        except lmdb.Error as error:
            raise HotStateError(
                f"{self.directory}: {error}; the state before is kept. Is the disk full?"
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the bucket's lock, from every process; inside it, hold it once more for free."""
        if self._locks_held:
            yield
            return
        path = self.directory / "bucket.lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._wait_for(lock)
            self._locks_held = True
            if self._env is not None and not self.in_place:
                self._open()
            yield
        finally:
            self._locks_held = False
            os.close(lock)

    def _wait_for(self, lock: int) -> None:
        deadline = time.monotonic() + self._lock_seconds
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise BucketLocked(
                        f"{self.directory}: locked by another process for more than "
                        f"{self._lock_seconds} s; find it with `fuser {self.directory}/bucket.lock`"
                    ) from None
                time.sleep(LOCK_POLL_SECONDS)

    def _open(self) -> None:
        """Open the environment under the lock; what cannot be trusted is deleted before."""
        self.close()
        if not self._trusted():
            self._delete()
        try:
            self._open_environment()
        except DAMAGE:
            self._delete()
            self._open_environment()
        except lmdb.Error as error:
            raise HotStateError(
                f"{self.directory}: {error} A process may open a bucket once (with `opened`), and "
                "none that it was forked from may have it open; otherwise check disk and rights"
            ) from error

    def _open_environment(self) -> None:
        self._env = lmdb.open(
            str(self.directory),
            map_size=self._map_bytes,
            max_dbs=2,
            mode=0o600,
            sync=False,
            metasync=False,
            readahead=READAHEAD,
        )
        self._env.reader_check()
        self._groups = self._env.open_db(b"groups")
        self._entries = self._env.open_db(b"entries")
        with self._transaction() as txn:
            self._read_stamp(txn)
        self._inode = self._data.stat().st_ino

    def _trusted(self) -> bool:
        """Whether LMDB may open the files: it maps them, and what is cut kills the process."""
        try:
            identity = (self.directory / "identity").read_text(errors="replace")
        except FileNotFoundError:
            return False
        return identity == self._identity and (not self._data.exists() or _sound(self._data))

    def _delete(self) -> None:
        """Delete the files of LMDB, and say for whom the next ones are."""
        self.close()
        for name in ("identity", "data.mdb", "lock.mdb"):
            (self.directory / name).unlink(missing_ok=True)
        fresh = self.directory / "identity.new"
        fresh.write_text(self._identity)
        fresh.replace(self.directory / "identity")


def _write(
    txn: lmdb.Transaction[bytes], database: lmdb._Database, records: dict[bytes, bytes | None]
) -> None:
    """Put and delete in the order of the keys, so that neighbours share the way to their page."""
    with txn.cursor(database) as cursor:
        for key in sorted(key for key, data in records.items() if data is None):
            if cursor.set_key(key):
                cursor.delete()
        cursor.putmulti(sorted((key, data) for key, data in records.items() if data is not None))


def _size(part: Upserts | _Records) -> int:
    if isinstance(part, _Records):
        return len(part.groups) + len(part.entries)
    return len(part.groups) + sum(len(counts) for _, _, counts in part.multisets)


def _spilled(
    start: bytes, counts: Iterable[tuple[bytes, int]]
) -> Iterator[tuple[bytes, bytes | None]]:
    for order, multiplicity in counts:
        entry = _entry_key(start, order)
        if not multiplicity:
            yield entry, None
        elif len(start) + len(order) > KEY_BYTES_MAX:
            yield entry, _encode(_LongEntry(multiplicity, order))
        else:
            yield entry, _encode(multiplicity)


def _entry_key(start: bytes, order: bytes) -> bytes:
    entry = start + order
    return entry if len(entry) <= KEY_BYTES_MAX else bounded(entry, KEY_BYTES_MAX)


_META_PAGES = 2
_MAGIC = 0xBEEFC0DE
_DATA_VERSION = 1
_NO_PAGE = (1 << 64) - 1
_PAGE_HEADER = struct.Struct("=QHHHH")  # number, pad, flags, bounds of the free space
_ROOT_FLAGS = (0x01, 0x02)  # a branch, a leaf
# Magic, version, address, map size; two databases; the last page and the transaction.
_META = struct.Struct("=IIQQ" + 2 * "IHHQQQQQ" + "QQ")


def _sound(path: Path) -> bool:
    """Whether a data file has the frame that LMDB trusts without looking: both meta pages, the
    length they speak of, and roots that are pages. Reads four pages.

    LMDB may count a last page that it took and gave back unwritten; then a sound state is built
    again, which costs time only.
    """
    with path.open("rb") as file:
        try:
            first = _META.unpack(file.read(_PAGE_HEADER.size + _META.size)[_PAGE_HEADER.size :])
            page_bytes = first[4]
            file.seek(page_bytes + _PAGE_HEADER.size)
            metas = [first, _META.unpack(file.read(_META.size))]
        except (struct.error, ValueError):
            return False
        if any(meta[:2] != (_MAGIC, _DATA_VERSION) or meta[4] != page_bytes for meta in metas):
            return False
        newest = max(metas, key=itemgetter(-1))
        last_page = newest[-2]
        if page_bytes == 0 or os.fstat(file.fileno()).st_size < (last_page + 1) * page_bytes:
            return False
        for root in (newest[11], newest[19]):
            if root == _NO_PAGE:
                continue
            if not _META_PAGES <= root <= last_page:
                return False
            file.seek(root * page_bytes)
            number, _, flags, _, _ = _PAGE_HEADER.unpack(file.read(_PAGE_HEADER.size))
            if number != root or flags not in _ROOT_FLAGS:
                return False
    return True


_states: dict[tuple[int, Path], HotState] = {}


def opened(directory: Path, layout: Layout) -> HotState:
    """The hot state of a bucket, opened once in this process and kept open.

    States of the process that this one was forked from are left alone: they are its own, and
    LMDB refuses to open those buckets here as long as it has them open. Spark's daemon has none.
    """
    place = (os.getpid(), directory.absolute())
    state = _states.pop(place, None)
    if state is not None and (state.layout != layout or not state.in_place):
        state.close()
        state = None
    if state is None:
        state = HotState.open(directory, layout)
    _states[place] = state
    mine = [other for other in _states if other[0] == place[0]]
    for other in mine[: -limits.HOT_STATES_OPEN_MAX]:
        _states.pop(other).close()
    return state


def catch_up(
    state: HotState,
    base: Stamp,
    line: Sequence[Stamp],
    load: Callable[[Stamp | None], Steps],
) -> None:
    """Bring a bucket's state to `base`, whatever it is at.

        at base                                      nothing to do
        older, one of `line`                         apply what came since
        newer than base                              ZombieTask
        empty, unknown, other layout, damaged        build from the table
        locked by another process                    wait with a limit, look again

    `line` has the recent committed stamps in order. `load(stamp)` gives the epochs after it up to
    base (those without upserts may be left out), `load(None)` the whole state at base in parts.
    """
    trouble: HotStateError | None = None
    for _ in range(LOOKS_MAX):
        found = state.stamp
        if found == base:
            return
        if found is not None and (found.generation, found.epoch) > (base.generation, base.epoch):
            raise ZombieTask(
                f"{state.directory}: the state is at {found}, this task begins at {base}; a newer "
                "writer is at work. If the table was set back on purpose, delete the directory"
            )
        try:
            if found is not None and found in line:
                state.advance(_on_line(load(found), found, base, line), since=found)
            else:
                whole = itertools.chain(load(None), [(base, Upserts())])
                state.rebuild(whole, since=found)
        except (StampMoved, HotStateDamaged) as error:
            trouble = error
    raise HotStateError(
        f"{state.directory}: after {LOOKS_MAX} looks the state is at {state.stamp}, not at {base}"
    ) from trouble


def _on_line(steps: Steps, found: Stamp, base: Stamp, line: Sequence[Stamp]) -> Steps:
    """The steps from `found` to `base`, held to the committed line; base comes last in any case."""
    places = {stamp: place for place, stamp in enumerate(line)}
    places[base] = len(line)
    at = places[found]
    for stamp, upserts in steps:
        place = places.get(stamp, -1)
        if place < at or stamp == found:
            raise HotStateError(f"epoch {stamp} was loaded to follow {line[at : at + 1] or base}")
        at = place
        yield stamp, upserts
    yield base, Upserts()
