"""The hot state: the committed state of one bucket, in an LMDB environment on local disk.

    <directory>/            mode 0700
      identity              layout and boot for which the rest was written; read before the rest
      bucket.lock           an OS lock: one writer, waited for with a limit
      data.mdb, lock.mdb    LMDB:  stamp    -> epoch, uuid, generation, identity
                                   groups, entries, timers, withheld: see hot_records

It is a cache of the table: it holds committed epochs only, it is brought forward by applying what
later epochs committed (`catch_up`), and whatever looks wrong is deleted and built again. So
nothing is synced to disk; the boot id in the identity stands for "no power was lost since".
Damage inside a page whose frame is sound is not detected: there are no checksums.

LMDB allows one open environment per process and file, and none across a fork: `opened` keeps them.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import lmdb
import msgspec

from jobs.core.fold.state import Stamp, Upserts
from jobs.edge.process.failpoints import failpoint
from jobs.edge.state.hot_records import (
    Databases,
    Keys,
    Layout,
    Records,
    Snapshot,
    decode_records,
    encode,
)
from jobs.edge.state.lmdb_frame import make_room, sound
from schemas import limits

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
STAMP_KEY = b"stamp"
_REDO = "redo-"

# With a cold page cache 14,000 groups of a 160 MB state took 0.25 s with readahead, 0.8 s without;
# 500 groups 0.15 s against 0.1 s.
READAHEAD = True

LOCK_POLL_SECONDS = 0.005
LOOKS_MAX = 5  # how often a task looks again at a state that other processes keep moving

DAMAGE = (
    lmdb.CorruptedError, lmdb.InvalidError, lmdb.PageNotFoundError, lmdb.VersionMismatchError,
    lmdb.PanicError, lmdb.IncompatibleError, lmdb.BadTxnError, lmdb.NotFoundError,
    msgspec.DecodeError,
)  # fmt: skip

# What an epoch changed, as upserts or as the records that `remember` made of them.
Steps = Iterable[tuple[Stamp, "Upserts | Records"]]


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


class _StampRecord(msgspec.Struct, frozen=True, array_like=True):
    epoch: int
    uuid: str
    generation: int
    identity: str


_decode_stamp = msgspec.msgpack.Decoder(_StampRecord).decode


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
        self._keys = Keys(layout)
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
            yield Snapshot(self._keys, txn, self._databases, stamp)

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
                failpoint("hot_state_half_built")
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
        unfinished.write_bytes(encode(records))
        unfinished.rename(path)

    def recalled(self, stamp: Stamp) -> Records | None:
        """What `remember` kept of a committed epoch, if this is the host that folded it."""
        try:
            return decode_records(self._redo(stamp.epoch, stamp.uuid).read_bytes())
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
    ) -> Iterator[tuple[Stamp, list[Upserts | Records]]]:
        """Steps as many together as one transaction should take."""
        parts: list[Upserts | Records] = []
        count = 0
        last: Stamp | None = None
        for stamp, step in steps:
            full = count >= limits.HOT_STATE_CHUNK_RECORDS
            if last is not None and full and not (whole_epochs and stamp == last):
                yield last, parts
                parts, count = [], 0
            if isinstance(step, Records):
                parts.append(step)
            else:
                if not parts or isinstance(parts[-1], Records):
                    parts.append(Upserts([], [], []))
                together = parts[-1]
                assert isinstance(together, Upserts)
                together.groups += step.groups
                together.multisets += step.multisets
                together.timers += step.timers
            count += len(step)
            last = stamp
        if last is not None:
            yield last, parts

    def _commit(
        self, parts: Sequence[Upserts | Records], before: Stamp | None, after: Stamp | None
    ) -> None:
        """One write transaction; with a larger map and once more when the map is full."""
        while True:
            try:
                with self._transaction(write=True) as txn:
                    self._require(self._read_stamp(txn), before)
                    for part in parts:
                        if isinstance(part, Upserts):
                            part = Snapshot(self._keys, txn, self._databases, before).after(part)
                        for database, records in zip(self._databases, part.kinds, strict=True):
                            _write(txn, database, records)
                    failpoint("hot_state_written")
                    if after is not None:
                        txn.put(STAMP_KEY, encode(_StampRecord(*after, self._identity)))
                break
            except lmdb.MapFullError:
                env = self._environment
                env.set_mapsize(2 * env.info()["map_size"])

    @property
    def _empty(self) -> bool:
        """Whether nothing was ever put into the files, not even the part of a rebuild."""
        with self._transaction() as txn:
            return txn.get(STAMP_KEY) is None and not any(
                txn.stat(database)["entries"] for database in self._databases
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
        make_room(self.directory / "lock.mdb")
        self._env = lmdb.open(
            str(self.directory), map_size=self._map_bytes, max_dbs=len(Databases._fields),
            mode=0o600, sync=False, metasync=False, readahead=READAHEAD,
        )  # fmt: skip
        self._env.reader_check()
        self._databases = Databases(*map(self._env.open_db, map(str.encode, Databases._fields)))
        with self._transaction() as txn:
            self._read_stamp(txn)
        self._inode = self._data.stat().st_ino

    def _trusted(self) -> bool:
        """Whether LMDB may open the files: it maps them, and what is cut kills the process."""
        try:
            identity = (self.directory / "identity").read_text(errors="replace")
        except FileNotFoundError:
            return False
        return identity == self._identity and (not self._data.exists() or sound(self._data))

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
    if not records:
        return
    with txn.cursor(database) as cursor:
        for key in sorted(key for key, data in records.items() if data is None):
            if cursor.set_key(key):
                cursor.delete()
        cursor.putmulti(sorted((key, data) for key, data in records.items() if data is not None))


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
