"""Keep the committed state of one bucket in an LMDB environment on local disk.

    <directory>/            mode 0700
      identity              layout and boot of the other files; read before them
      bucket.lock           an OS lock for the one writer; others wait for it with a limit
      data.mdb, lock.mdb    LMDB:  stamp    -> epoch, uuid, generation, identity
                                   groups, entries, timers, withheld: see hot_records

It is a cache of the table and holds committed epochs only. The module `catch_up` applies later
epochs and rebuilds a damaged state, so nothing is synced to disk: another boot id in the identity
means that power may have been lost. There are no checksums, so damage inside a page with a sound
frame is not detected.

LMDB allows one open environment per process and file, and none across a fork (`open_shared`).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path

import lmdb
import msgspec

from jobs.core.fold.state import Stamp, Upserts
from jobs.edge.process.failpoints import failpoint
from jobs.edge.state.bucket_lock import hold_bucket
from jobs.edge.state.errors import HotStateDamaged, HotStateError, StampMoved
from jobs.edge.state.hot_records import (
    Databases,
    Keys,
    Layout,
    Records,
    Snapshot,
    decode_records,
    encode,
)
from jobs.edge.state.open_states import OpenStates
from jobs.edge.state.redo_files import find_redo, store_redo
from schemas import limits
from schemas.process.kernel import BOOT_ID

STAMP_KEY = b"stamp"

# With a cold page cache 14,000 groups of a 160 MB state took 0.25 s with readahead, 0.8 s without;
# 500 groups 0.15 s against 0.1 s.
READAHEAD = True

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

# The changes of epochs, as upserts or as the records that `remember` made of them; None is none.
Steps = Iterable[tuple[Stamp, "Upserts | Records | None"]]


class _StampRecord(msgspec.Struct, frozen=True, array_like=True):
    epoch: int
    uuid: str
    generation: int
    identity: str


_decode_stamp = msgspec.msgpack.Decoder(_StampRecord).decode


class HotState:
    """The hot state of one bucket. Open it with `open_shared`, or once per process."""

    def __init__(
        self,
        directory: Path,
        layout: Layout,
        *,
        map_bytes: int = limits.HOT_STATE_MAP_BYTES,
        lock_seconds: float = limits.BUCKET_LOCK_SECONDS_MAX,
    ) -> None:
        """Open the state if it is sound and of this layout and boot; else start empty."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
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
        with self._hold_lock():
            self._open()

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None

    def read_stamp(self) -> Stamp | None:
        """Return the state's stamp; None if it is empty or half built. Reset a damaged state."""
        if not self.in_place:
            with self._hold_lock():  # opens the files in the directory
                pass
        try:
            with self._transaction() as txn:
                return self._load_stamp(txn)
        except DAMAGE:
            self.reset()
            return None

    @property
    def in_place(self) -> bool:
        """Whether the open files are still in the directory; another process may delete them."""
        try:
            return self._env is not None and self._data.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    @contextmanager
    def view(self, base: Stamp | None = None) -> Iterator[Snapshot]:
        """Open a snapshot for a fold; raise StampMoved unless it is at `base`, if that is given.

        The process must not advance the state meanwhile: growing the map ends its snapshots.
        """
        with self._translate_errors(), self._transaction() as txn:
            stamp = self._load_stamp(txn)
            if base is not None and stamp != base:
                raise StampMoved(f"{self.directory}: the state is at {stamp}, not at {base}")
            yield Snapshot(self._keys, txn, self._databases, stamp)

    def advance(self, steps: Steps, *, since: Stamp | None) -> None:
        """Apply committed epochs in order and set the stamp of the last one.

        `since` is the stamp before the steps; if the state is at another stamp, raise StampMoved.
        With None, rebuild: the state has no stamp until all parts are applied.
        """
        if since is None:
            self.rebuild(steps, since=None)
            return
        with self._hold_lock(), self._translate_errors():
            at = since
            for last, parts in self._chunk_steps(steps, whole_epochs=True):
                self._commit(parts, at, last)
                at = last

    def rebuild(self, steps: Steps, *, since: Stamp | None) -> None:
        """Delete everything and apply the whole state; raise StampMoved unless at `since`."""
        with self._hold_lock(), self._translate_errors():
            self._require_stamp(self.read_stamp(), since)
            if not self._is_empty:
                self.reset()
            reached: Stamp | None = None
            for last, parts in self._chunk_steps(steps, whole_epochs=False):
                self._commit(parts, None, None)
                failpoint("hot_state_half_built")
                reached = last
            self._commit((), None, reached)

    def reset(self) -> None:
        """Delete everything and start empty."""
        with self._hold_lock():
            self._delete()
            self._open()

    def remember(self, epoch: int, uuid: str, records: Records) -> None:
        """Store the changes of an uncommitted epoch, as records to apply later.

        They are not part of the state. A task calls `recall` only for an epoch on the committed
        line. If the records are missing, the task reads the same changes from the table.
        """
        store_redo(self.directory, self._redo_name(epoch, uuid), encode(records))

    def recall(self, stamp: Stamp) -> Records | None:
        """Return the records that `remember` stored for an epoch; None if it stored none here."""
        data = find_redo(self.directory, self._redo_name(stamp.epoch, stamp.uuid))
        try:
            return None if data is None else decode_records(data)
        except msgspec.DecodeError:
            return None

    def _redo_name(self, epoch: int, uuid: str) -> str:
        """Return the name of an epoch's records; they fit only the current data file."""
        return f"{epoch}-{uuid}-{self.layout.fingerprint}-{self._inode}"

    def _chunk_steps(
        self, steps: Steps, *, whole_epochs: bool
    ) -> Iterator[tuple[Stamp, list[Upserts | Records]]]:
        """Group steps into chunks for one transaction each."""
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
            elif step is not None:
                if not parts or isinstance(parts[-1], Records):
                    parts.append(Upserts([], [], []))
                together = parts[-1]
                assert isinstance(together, Upserts)
                together.groups += step.groups
                together.multisets += step.multisets
                together.timers += step.timers
            count += 0 if step is None else len(step)
            last = stamp
        if last is not None:
            yield last, parts

    def _commit(
        self, parts: Sequence[Upserts | Records], before: Stamp | None, after: Stamp | None
    ) -> None:
        """Commit one write transaction; if the map is full, enlarge it and try again."""
        while True:
            try:
                with self._transaction(write=True) as txn:
                    self._require_stamp(self._load_stamp(txn), before)
                    for part in parts:
                        if isinstance(part, Upserts):
                            part = Snapshot(self._keys, txn, self._databases, before).to_records(
                                part
                            )
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
    def _is_empty(self) -> bool:
        """Whether the files have no record at all, not even from part of a rebuild."""
        with self._transaction() as txn:
            return txn.get(STAMP_KEY) is None and not any(
                txn.stat(database)["entries"] for database in self._databases
            )

    def _require_stamp(self, found: Stamp | None, expected: Stamp | None) -> None:
        if found != expected:
            raise StampMoved(f"{self.directory}: the state is at {found}, not at {expected}")

    def _load_stamp(self, txn: lmdb.Transaction[bytes]) -> Stamp | None:
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
    def _translate_errors(self) -> Iterator[None]:
        """Translate errors of LMDB into HotStateError; delete a damaged state."""
        try:
            yield
        except DAMAGE as error:
            self.reset()
            raise HotStateDamaged(
                f"{self.directory}: the hot state was damaged ({error}) and is deleted; "
                "the next task rebuilds it from the table"
            ) from error
        except lmdb.Error as error:
            raise HotStateError(
                f"{self.directory}: {error}; the hot state is unchanged; check for a full disk"
            ) from error

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Hold the bucket's lock across processes; nested calls do nothing."""
        if self._locks_held:
            yield
            return
        try:
            with hold_bucket(self.directory, self._lock_seconds):
                self._locks_held = True
                if self._env is not None and not self.in_place:
                    self._open()
                yield
        finally:
            self._locks_held = False

    def _open(self) -> None:
        """Open the environment under the lock, after deleting files that LMDB must not map."""
        self.close()
        if not self._is_trusted():
            self._delete()
        try:
            self._open_environment()
        except DAMAGE:
            self._delete()
            self._open_environment()
        except lmdb.Error as error:
            raise HotStateError(
                f"{self.directory}: {error}; open a bucket once per process, and not in a process "
                "that it was forked from; otherwise check the disk and its permissions"
            ) from error

    def _open_environment(self) -> None:
        make_room(self.directory / "lock.mdb")
        self._env = lmdb.open(
            str(self.directory),
            map_size=self._map_bytes,
            max_dbs=len(Databases._fields),
            mode=0o600,
            sync=False,
            metasync=False,
            readahead=READAHEAD,
        )
        self._env.reader_check()
        self._databases = Databases(*map(self._env.open_db, map(str.encode, Databases._fields)))
        with self._transaction() as txn:
            self._load_stamp(txn)
        self._inode = self._data.stat().st_ino

    def _is_trusted(self) -> bool:
        """Return whether LMDB may map the files; a truncated file would kill the process."""
        try:
            identity = (self.directory / "identity").read_text(errors="replace")
        except FileNotFoundError:
            return False
        return identity == self._identity and (not self._data.exists() or is_sound(self._data))

    def _delete(self) -> None:
        """Delete the files of LMDB and write the identity for the next files."""
        self.close()
        for name in ("identity", "data.mdb", "lock.mdb", "columns", "columns.new"):
            (self.directory / name).unlink(missing_ok=True)
        fresh = self.directory / "identity.new"
        fresh.write_text(self._identity)
        fresh.replace(self.directory / "identity")


def _write(
    txn: lmdb.Transaction[bytes], database: lmdb._Database, records: dict[bytes, bytes | None]
) -> None:
    """Put and delete records in key order, so that neighbours share page lookups."""
    if not records:
        return
    with txn.cursor(database) as cursor:
        for key in sorted(key for key, data in records.items() if data is None):
            if cursor.set_key(key):
                cursor.delete()
        cursor.putmulti(sorted((key, data) for key, data in records.items() if data is not None))


_states = OpenStates(HotState.close)


def open_shared(directory: Path, layout: Layout) -> HotState:
    """Return the hot state of a bucket, opened once in this process and kept open.

    LMDB refuses a bucket that a parent process has open. Spark's daemon opens none.
    """

    def fits(state: HotState) -> bool:
        return state.layout == layout and state.in_place

    return _states.open(directory, fits, lambda: HotState(directory, layout))


_LOCK_BYTES = 8 * 1024  # for 126 readers, LMDB's default
_META_PAGES = 2
_MAGIC = 0xBEEFC0DE
_DATA_VERSION = 1
_NO_PAGE = (1 << 64) - 1
_PAGE_HEADER = struct.Struct("=QHHHH")  # number, pad, flags, bounds of the free space
_ROOT_FLAGS = (0x01, 0x02)  # a branch, a leaf
# Magic, version, address, map size; two databases; the last page and the transaction.
_META = struct.Struct("=IIQQ" + 2 * "IHHQQQQQ" + "QQ")


def make_room(lock: Path) -> None:
    """Allocate the lock file, which LMDB writes only through its map.

    On a full disk a write to the map would kill the process.
    """
    with lock.open("ab") as file:
        os.posix_fallocate(file.fileno(), 0, _LOCK_BYTES)


def is_sound(path: Path) -> bool:
    """Return whether a data file has two meta pages, the length they name, and valid roots.

    LMDB may count a last page that it took and gave back unwritten. Then a sound state is rebuilt,
    which only costs time.

    LMDB maps a truncated file too, which kills a process that reads it.
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
