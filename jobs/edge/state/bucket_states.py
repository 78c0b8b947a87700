"""Bring the hot state of each bucket of a task to the task's base.

    at base                         use it
    a recent committed epoch        apply each later epoch: records stored on this host, or files
    elsewhere, or empty             apply the live state files of the table, oldest first

A task gets the base, the table's version at the base, and the recent epochs; it has no other state.
Groups and images are stored alike, each with a directory name and a layout.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from jobs.core.fold.state import Stamp, Upserts
from jobs.edge.state.catch_up import BucketState, catch_up
from jobs.edge.state.hot_records import Layout
from jobs.edge.state.hot_state import HotState, open_shared
from jobs.edge.table.epoch_files import TableLayout
from jobs.reading.epoch_rows import epoch_rows
from jobs.reading.files import LiveFile, live_files, open_table
from jobs.reading.parts import GROUP_STATE, STATE
from schemas.directory.paths import JobDirectory, on_this_host
from schemas.limits import RECENT_EPOCHS_MAX
from schemas.table.epoch import EpochRow
from schemas.table.object_path import TablePath
from schemas.table.parquet_file import naming, table_file

C = TypeVar("C")  # the changes of an epoch


@dataclass(frozen=True, slots=True)
class CommittedEpoch:
    """A recent committed epoch, with its state files."""

    stamp: Stamp
    files: tuple[tuple[str, str], ...]  # (part, name)

    @classmethod
    def of(cls, row: EpochRow) -> CommittedEpoch:
        state = [(part, name) for part in STATE for name in row.files.get(part, ())]
        return cls(stamp_of(row), tuple(state))


def stamp_of(row: EpochRow) -> Stamp:
    return Stamp(row.epoch, row.uuid, row.generation)


def hot_state_of(paths: JobDirectory, handle: DeltaTable) -> Path:
    """Return the directory of the hot state of a job's table on this host."""
    return paths.hot_state(str(handle.metadata().id))


def find_recent_epochs(
    root: TablePath, files: Sequence[LiveFile], newest: EpochRow
) -> list[CommittedEpoch]:
    """Return the recent epochs of a view up to the newest whose state files all exist.

    With them an older hot state catches up instead of being rebuilt.
    """
    rows = epoch_rows(root, files, since=newest.epoch - RECENT_EPOCHS_MAX)
    recent_epochs = [CommittedEpoch.of(row) for row in rows if row.generation == newest.generation]
    incomplete = [
        index
        for index, epoch in enumerate(recent_epochs)
        if any(not (root / name).exists() for _, name in epoch.files)
    ]
    # A catch-up from an epoch needs the files of later epochs only.
    return recent_epochs[incomplete[-1] :] if incomplete else recent_epochs


@dataclass(frozen=True, slots=True)
class CommittedState:
    """The committed state that a task starts from."""

    root: TablePath
    cache: Path
    base: Stamp
    version: int  # of the table, at base
    recent_epochs: tuple[CommittedEpoch, ...]  # in order, base last


class RememberingState(BucketState[C], Protocol[C]):
    """A bucket's state that may remember the changes of an epoch on this host."""

    def recall(self, stamp: Stamp) -> C | None: ...


class BucketStates:
    """The hot states in LMDB of groups for the buckets of a task."""

    def __init__(self, committed: CommittedState, layout: TableLayout, hot_layout: Layout) -> None:
        self._hot_layout = hot_layout
        self._source = StateSource(committed, GROUP_STATE, "bucket")
        self.files = StateFiles(committed.root, layout, GROUP_STATE)

    def catch_up(self, bucket: int) -> HotState:
        """Bring the state of a bucket to the task's base and return it."""
        state = open_shared(self._source.directory(bucket), self._hot_layout)

        def read(named: Iterable[tuple[str, str]]) -> list[Any]:
            return [self.files.of_bucket(bucket, named)]

        self._source.catch_up(state, read)
        return state


class StateSource:
    """Where the buckets of a task get their changes from: this host, or the table's files."""

    def __init__(self, committed: CommittedState, parts: Collection[str], name: str) -> None:
        self._committed = committed
        self._parts = parts
        self._home, self._name = on_this_host(committed.cache), name  # of the directories
        self._stamps = [epoch.stamp for epoch in committed.recent_epochs]

    def directory(self, bucket: int) -> Path:
        """Return where this host keeps the state of a bucket."""
        return self._home / f"{self._name}-{bucket:04d}"

    def catch_up(
        self,
        state: RememberingState[C],
        read: Callable[[Sequence[tuple[str, str]]], Iterable[C | None]],
    ) -> None:
        """Bring the state of a bucket to the task's base; `read` gets changes out of files."""

        def load(stamp: Stamp | None) -> Iterator[tuple[Stamp, C | None]]:
            return self._steps(state, stamp, read)

        catch_up(state, self._committed.base, self._stamps, load)

    def _steps(
        self,
        state: RememberingState[C],
        stamp: Stamp | None,
        read: Callable[[Sequence[tuple[str, str]]], Iterable[C | None]],
    ) -> Iterator[tuple[Stamp, C | None]]:
        """Yield the bucket's changes since `stamp`: recent epochs, or else the whole table.

        A recent epoch comes from the records that this host stored, or from its files.
        """
        committed = self._committed
        recent = [
            epoch for epoch in committed.recent_epochs if stamp is not None and epoch.stamp > stamp
        ]
        known = stamp is not None and any(epoch.stamp == stamp for epoch in committed.recent_epochs)
        if known:
            for epoch in recent:
                records = state.recall(epoch.stamp)
                found = read(epoch.files) if records is None else [records]
                yield from zip(repeat(epoch.stamp), found)
            return
        for part_file in self._live_files:  # oldest first, so that the newest row of a key wins
            yield from zip(repeat(committed.base), read([part_file]))

    @cached_property
    def _live_files(self) -> list[tuple[str, str]]:
        """The state files of the table at base; a task reads the list once, for a rebuild."""
        return [
            (file.part, file.path)
            for file in live_files(open_table(self._committed.root, self._committed.version))
            if file.part in self._parts
        ]


class StateFiles:
    """Reads state files bucket by bucket.

    Files are sorted by bucket. Row groups of large files hold whole buckets, so only the row groups
    of a bucket are read, and once for consecutive buckets.
    """

    def __init__(self, root: TablePath, layout: TableLayout, parts: Collection[str]) -> None:
        self.root = root
        self.layout = layout
        self.parts = parts
        self.rows_read = 0  # what no task on this host had stored: catching up with others
        self._files: dict[str, tuple[pq.FileMetaData, list[tuple[int, int]]]] = {}
        self._read: dict[str, tuple[list[int], pa.Table, np.ndarray[Any, Any]]] = {}

    def of_bucket(self, bucket: int, files: Iterable[tuple[str, str]]) -> Upserts:
        """Return the upserts of a bucket in these (part, name) files."""
        found = Upserts([], [], [])
        for part, name in files:
            if part in self.parts:
                upserts = self.layout.read_upserts(**{part: self.rows_of(bucket, name)})
                found.groups += upserts.groups
                found.multisets += upserts.multisets
                found.timers += upserts.timers
        return found

    def rows_of(self, bucket: int, name: str) -> pa.Table:
        if name not in self._files:
            metadata = table_file(self.root / name).metadata
            self._files[name] = (metadata, _bucket_ranges(metadata))
        metadata, ranges = self._files[name]
        wanted = [number for number, (low, high) in enumerate(ranges) if low <= bucket <= high]
        if name not in self._read or self._read[name][0] != wanted:
            path = self.root / name
            with naming(path), table_file(path, metadata) as file:
                table = file.read_row_groups(wanted)
            self._read[name] = (wanted, table, table["bucket"].to_numpy())
        _, table, buckets = self._read[name]
        start, end = np.searchsorted(buckets, [bucket, bucket + 1]).tolist()
        self.rows_read += end - start
        return table.slice(start, end - start)


def _bucket_ranges(metadata: pq.FileMetaData) -> list[tuple[int, int]]:
    """Return the first and the last bucket of each row group."""
    column = metadata.schema.names.index("bucket")
    found = []
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(column).statistics
        found.append((statistics.min, statistics.max))
    return found
