"""Snapshots of groups: everything that a job's table has about one group, cached.

A page of a group asks every few seconds, and reading a giant group takes long. So a snapshot stays
in memory until the next epoch, and longer if it took long to read: reading it uses a fraction of
one core at most.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from jobs.core.explain.extreme_changes import MultisetHistory
from jobs.reading.group import GroupReader, ReadFiles
from jobs.reading.row_shape import RowShape
from jobs.reading.version import Key, TableVersion
from schemas.directory.paths import JobDirectory
from schemas.documents.explanation import Explained
from schemas.limits import GROUP_SNAPSHOTS_KEPT
from schemas.table.epoch import EpochRow
from service.answers.results import TableReads
from service.live.table import LiveTable

_PAUSE_FACTOR = 4.0  # a snapshot is not read again for this many times its reading time


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """One group at one version of the table."""

    document: Explained
    remembered: MultisetHistory
    rows: dict[int, EpochRow]
    read_files: ReadFiles  # so that the next snapshot reads new files only


@dataclass(frozen=True, slots=True)
class _Cached:
    newest: str  # the uuid of the newest epoch then
    keep_until: float
    snapshot: GroupSnapshot


class GroupSnapshots:
    """The snapshots of all jobs' groups; thread-safe."""

    def __init__(self, reads: TableReads) -> None:
        self._reads = reads
        self._lock = threading.Lock()
        self._cached: WeakKeyDictionary[LiveTable, OrderedDict[bytes, _Cached]]
        self._cached = WeakKeyDictionary()

    def read(self, live_table: LiveTable, key: Key) -> GroupSnapshot:
        """Return a group's snapshot; raise a Problem if the group never existed.

        It may read a table: not for the event loop.
        """
        name = live_table.shape.key_bytes(key)
        newest = "" if live_table.newest is None else live_table.newest.uuid
        with self._lock:
            cached = self._cached.setdefault(live_table, OrderedDict()).get(name)
        began = time.monotonic()
        if cached is not None and (cached.newest == newest or began < cached.keep_until):
            return cached.snapshot
        buckets = live_table.spec.state.buckets
        known = {} if cached is None else dict(cached.snapshot.read_files)
        snapshot = self._reads.read(
            live_table,
            lambda table: take_snapshot(
                table, live_table.shape, key, buckets, known, live_table.paths
            ),
        )
        now = time.monotonic()
        keep_until = now + _PAUSE_FACTOR * (now - began)
        with self._lock:
            of_job = self._cached.setdefault(live_table, OrderedDict())
            of_job[name] = _Cached(newest, keep_until, snapshot)
            while len(of_job) > GROUP_SNAPSHOTS_KEPT:
                of_job.popitem(last=False)
        return snapshot


def take_snapshot(
    table: TableVersion,
    shape: RowShape,
    key: Key,
    buckets: int,
    read_files: ReadFiles | None = None,
    paths: JobDirectory | None = None,
) -> GroupSnapshot:
    """Read one group from a table; raise UnknownGroup if it never existed."""
    known = {} if read_files is None else read_files
    reader = GroupReader(table, shape, key, buckets, known, paths)
    document = reader.explain("")
    rows = {row.epoch: row for row in reader.epochs}
    return GroupSnapshot(document, reader.multisets, rows, known)
