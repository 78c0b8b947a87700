"""Keep the committed groups of one bucket in a file of arrays that is mapped into memory.

    columns       one page: stamp, room, counts, whether it is whole, a checksum
                  groups │ index │ entries │ index │ bytes of keys   (jobs.core.kernels.group_table)
    bucket.lock   an OS lock: a fold holds it while it reads, and a change while it writes
    redo          the changes of an epoch that may be committed

It is a cache of the table and holds committed epochs only. Changes are written in place: the page
says first that the file is not whole, and last the new stamp. A process that is killed in between
leaves a file that is not whole, and the bucket is built from the table. Every row and cell is
checked when it is read. A file that is full is copied, without what has ended, into a larger one.
"""

from __future__ import annotations

import mmap
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jobs.core.fold.columnar.bucket_fold import (
    ArraysDamaged,
    Room,
    apply,
    copy_table,
    larger_room,
    room_for,
    room_of,
    room_of_live_rows,
)
from jobs.core.fold.columnar.query import ColumnarQuery
from jobs.core.fold.state import Stamp
from jobs.core.kernels import group_table
from jobs.core.kernels.apply_records import RecordArrays
from jobs.core.kernels.compiled import Array
from jobs.core.kernels.group_table import EMPTY, ENTRY_WORDS, KEY_PAD, GroupTable
from jobs.edge.machine.memory import read_memory
from jobs.edge.process.failpoints import failpoint
from jobs.edge.state.bucket_lock import hold_bucket
from jobs.edge.state.columnar_records import decode_records, encode_records
from jobs.edge.state.errors import HotStateDamaged, StampMoved
from jobs.edge.state.open_states import OpenStates
from jobs.edge.state.redo_files import find_redo, store_redo
from schemas import limits
from schemas.process.kernel import BOOT_ID

VERSION = 2
Steps = Iterable[tuple[Stamp, RecordArrays | None]]

_PAGE = 4096
_WORD = 8
# The words of the first page.
_WHOLE, _CHECK, _EPOCH, _GENERATION, _ROOM, _COUNTS, _IDENTITY, _UUID = 0, 1, 2, 3, 4, 7, 11, 15
_UUID_WORDS, _HEADER_WORDS = 8, 23


class ColumnarState:
    """The groups of one bucket, committed up to a stamp."""

    def __init__(
        self,
        directory: Path,
        query: ColumnarQuery,
        plan: str,
        *,
        lock_seconds: float = limits.BUCKET_LOCK_SECONDS_MAX,
    ) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
        self.directory = directory
        self.query = query
        self.plan = plan
        self._lock_seconds = lock_seconds
        self._path = directory / "columns"
        text = f"{VERSION}\n{plan}\n{query}\n{BOOT_ID.read_text().strip()}"
        digest = blake2b(text.encode(), digest_size=32)
        self._identity = np.frombuffer(digest.digest(), np.int64)
        self._name = digest.hexdigest()[:32]
        self._inode = 0
        self._header = np.zeros(_HEADER_WORDS, np.int64)
        self._table: GroupTable | None = None
        self.exceeds_memory = False  # so a fold waits for the disk

    def read_stamp(self) -> Stamp | None:
        """Return the state's stamp; None if there is none, or a file that is not whole."""
        self._map()
        header = self._header.copy()
        if self._table is None or not header[_WHOLE] or header[_CHECK] != _check(header):
            return None
        uuid = header[_UUID : _UUID + _UUID_WORDS].tobytes().rstrip(b"\0").decode()
        return Stamp(int(header[_EPOCH]), uuid, int(header[_GENERATION]))

    @contextmanager
    def view(self, base: Stamp) -> Iterator[GroupTable]:
        """Hold the groups at `base` for a fold; raise StampMoved if they are at another stamp."""
        with self._hold_lock():
            self._require_stamp(base)
            assert self._table is not None
            yield self._table

    def advance(self, steps: Steps, *, since: Stamp | None) -> None:
        """Apply committed epochs in order and set the stamp of the last one."""
        with self._hold_lock():
            self._require_stamp(since)
            self._apply(steps)

    def rebuild(self, steps: Steps, *, since: Stamp | None) -> None:
        """Delete everything and apply the whole state; raise StampMoved unless at `since`."""
        with self._hold_lock():
            self._require_stamp(since)
            self.reset()
            self._grow(Room(0, 0, 0))
            self._apply(steps)

    def reset(self) -> None:
        """Delete the file, and those of the other kind of state."""
        self._table = None
        for name in ("columns", "columns.new", "identity", "data.mdb", "lock.mdb"):
            (self.directory / name).unlink(missing_ok=True)

    def remember(self, epoch: int, uuid: str, records: RecordArrays) -> None:
        """Store the changes of an uncommitted epoch, to apply them once it is committed."""
        store_redo(self.directory, self._redo_name(epoch, uuid), encode_records(records))

    def recall(self, stamp: Stamp) -> RecordArrays | None:
        """Return the changes that `remember` stored for an epoch; None if there are none here."""
        data = find_redo(self.directory, self._redo_name(stamp.epoch, stamp.uuid))
        return None if data is None else decode_records(data)

    def _redo_name(self, epoch: int, uuid: str) -> str:
        return f"{epoch}-{uuid}-{self._name}"

    def _apply(self, steps: Steps) -> None:
        """Apply steps in place; from the first change to the stamp the file is not whole."""
        reached: Stamp | None = None
        for stamp, records in steps:
            if records is not None:
                self._make_room(records)
                assert self._table is not None
                self._header[_WHOLE] = 0
                apply(self.query, self._table, records)
                failpoint("hot_state_half_built")
            reached = stamp
        failpoint("hot_state_written")
        if reached is not None:
            self._set_stamp(reached)

    def _set_stamp(self, stamp: Stamp) -> None:
        header = self._header
        header[_WHOLE] = 0
        header[_EPOCH], header[_GENERATION] = stamp.epoch, stamp.generation
        uuid = stamp.uuid.encode().ljust(_UUID_WORDS * _WORD, b"\0")
        header[_UUID : _UUID + _UUID_WORDS] = np.frombuffer(uuid, np.int64)
        header[_CHECK] = _check(header)
        header[_WHOLE] = 1

    def _make_room(self, records: RecordArrays) -> None:
        assert self._table is not None
        if not room_of(self._table).holds(room_for(self._table, records)):
            self._grow(room_for(self._table, records))

    def _grow(self, needed: Room) -> None:
        """Copy what lives into a file with more room, and go on in that one."""
        before = self._table
        used = needed
        if before is not None:
            used = room_of_live_rows(self.query, before, needed)
        room = larger_room(used)
        fresh = self._path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        try:
            mapped = _create(fresh, self.query, room, self._identity)
            assert mapped.table is not None
            if before is not None:
                _read_ahead(self._path)
                copy_table(self.query, before, mapped.table)
            fresh.rename(self._path)
        except Exception:
            # A disk that is full needs the room back.
            fresh.unlink(missing_ok=True)
            raise
        self._use(mapped)

    def _use(self, mapped: _Mapped) -> None:
        self._inode, self._header, self._table, self.exceeds_memory = mapped

    def _map(self) -> None:
        """Map the file in the directory, unless it is mapped already."""
        try:
            inode = self._path.stat().st_ino
            if self._table is not None and inode == self._inode:
                return
            # Between the two another process may delete the file, or put another one there.
            self._use(_map_file(self._path, self.query))
        except FileNotFoundError:
            self._table = None
            return
        if (self._header[_IDENTITY : _IDENTITY + 4] != self._identity).any():
            self._table = None

    def _require_stamp(self, expected: Stamp | None) -> None:
        found = self.read_stamp()
        if found != expected:
            raise StampMoved(f"{self.directory}: the state is at {found}, not at {expected}")

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Hold the bucket's lock; delete a state that turns out to be damaged."""
        with hold_bucket(self.directory, self._lock_seconds):
            try:
                yield
            except ArraysDamaged as error:
                self.reset()
                raise HotStateDamaged(
                    f"{self.directory}: the hot state was damaged ({error}) and is deleted; "
                    "the next task rebuilds it from the table"
                ) from error


def _check(header: Array) -> int:
    return zlib.crc32(header[_EPOCH:_HEADER_WORDS].tobytes())


class _Mapped(NamedTuple):
    """A file that is mapped; no table if its size is not what its first page says."""

    inode: int
    header: Array
    table: GroupTable | None
    exceeds_memory: bool


def _create(path: Path, query: ColumnarQuery, room: Room, identity: Array) -> _Mapped:
    """Make a file with this room, without groups, and map it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # A write to a mapped file for which the disk has no room kills the process.
        os.posix_fallocate(file, 0, _size(query, room))
        memory = mmap.mmap(file, _size(query, room))
        inode = os.fstat(file).st_ino
    finally:
        os.close(file)
    exceeds_memory = _expect_few_pages(memory, path)
    header = np.frombuffer(memory, np.int64, _HEADER_WORDS)
    header[_ROOM : _ROOM + len(room)] = room
    header[_IDENTITY : _IDENTITY + len(identity)] = identity
    header[_COUNTS + group_table.SEED] = secrets.randbits(62)
    table = _tables(memory, query, room)
    table.group_index[:] = EMPTY
    table.entry_index[:] = EMPTY
    return _Mapped(inode, header, table, exceeds_memory)


def _map_file(path: Path, query: ColumnarQuery) -> _Mapped:
    with path.open("r+b") as file:
        status = os.fstat(file.fileno())
        inode, size = status.st_ino, status.st_size
        if size < _PAGE:
            return _Mapped(inode, np.zeros(_HEADER_WORDS, np.int64), None, False)
        memory = mmap.mmap(file.fileno(), size)
    exceeds_memory = _expect_few_pages(memory, path)
    header = np.frombuffer(memory, np.int64, _HEADER_WORDS)
    room = Room(*header[_ROOM : _ROOM + 3].tolist())
    if header[_CHECK] != _check(header) or _size(query, room) != size:
        return _Mapped(inode, header, None, exceeds_memory)
    return _Mapped(inode, header, _tables(memory, query, room), exceeds_memory)


def _expect_few_pages(memory: mmap.mmap, path: Path) -> bool:
    """If the states of all buckets do not fit into memory, let the kernel read single pages.

    Else it reads 128 KiB around each page, which fills a cold cache soon, but of a cache that is
    too small it drops 31 other pages for each that is wanted.
    """
    buckets = len(os.listdir(path.parent.parent))
    exceeds_memory = len(memory) * buckets > read_memory().available
    if exceeds_memory:
        memory.madvise(mmap.MADV_RANDOM)
    return exceeds_memory


def _read_ahead(path: Path) -> None:
    """Let the kernel read a whole file, however single pages of it are mapped."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)


def _size(query: ColumnarQuery, room: Room) -> int:
    groups, group_cells, entries, entry_cells = room.shapes
    words = groups * query.width + group_cells + entries * ENTRY_WORDS + entry_cells
    return _PAGE + words * _WORD + room.key_bytes + KEY_PAD


def _tables(memory: mmap.mmap, query: ColumnarQuery, room: Room) -> GroupTable:
    at = _PAGE

    def take(count: int) -> Array:
        nonlocal at
        found = np.frombuffer(memory, np.int64, count, at)
        at += count * _WORD
        return found

    groups, group_cells, entries, entry_cells = room.shapes
    found = (
        take(groups * query.width).reshape(groups, query.width),
        take(group_cells),
        take(entries * ENTRY_WORDS).reshape(entries, ENTRY_WORDS),
        take(entry_cells),
    )
    heap = np.frombuffer(memory, np.uint8, room.key_bytes + KEY_PAD, at)
    counts = np.frombuffer(memory, np.int64, 4, _COUNTS * _WORD)
    return GroupTable(found[0], found[1], heap, found[2], found[3], counts)


_states = OpenStates[ColumnarState]()


def open_columns(directory: Path, query: ColumnarQuery, plan: str) -> ColumnarState:
    """Return the state of a bucket, mapped once in this process."""

    def fits(state: ColumnarState) -> bool:
        return state.query == query and state.plan == plan and directory.exists()

    return _states.open(directory, fits, lambda: ColumnarState(directory, query, plan))
