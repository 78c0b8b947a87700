"""Bucket states: the hot state of each bucket of a task, brought to the task's base.

    at base                         as it is
    on the committed line           + what each later epoch changed: remembered here, or its files
    anything else, or nothing       the live state files of the table, oldest first

Tasks have no state of their own: what they are told is the base, the table's version there, and
the recent epochs. Groups and images are kept alike, each under a name and a layout of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from jobs.core.fold.state import Stamp, Upserts
from jobs.edge.state.hot_records import Layout
from jobs.edge.state.hot_state import HotState, Steps, catch_up, opened
from jobs.edge.table.delta_epochs import EpochTable, epoch_rows, live_files
from jobs.edge.table.delta_epochs import opened as opened_table
from jobs.edge.table.epoch_files import STATE, TableLayout
from schemas.limits import LINE_EPOCHS
from schemas.table.epoch import EpochRow
from schemas.table.object_path import TablePath
from schemas.table.parquet_file import naming, table_file
from schemas.table.places import JobDirectory, on_this_host


@dataclass(frozen=True, slots=True)
class CommittedEpoch:
    """A recent epoch of the committed line and its state files."""

    stamp: Stamp
    files: tuple[tuple[str, str], ...]  # (part, name)

    @classmethod
    def of(cls, row: EpochRow) -> CommittedEpoch:
        state = [(part, name) for part in STATE for name in row.files.get(part, ())]
        return cls(stamp_of(row), tuple(state))


def stamp_of(row: EpochRow) -> Stamp:
    return Stamp(row.epoch, row.uuid, row.generation)


def hot_state_of(place: JobDirectory, handle: DeltaTable) -> Path:
    """Return where this host keeps the hot state of this table of the job."""
    return place.hot_state(str(handle.metadata().id))


def recent_line(table: EpochTable, newest: EpochRow) -> list[CommittedEpoch]:
    """The recent epochs whose state files are all still there, up to the newest: with them a
    hot state that was left some epochs ago catches up instead of being built anew."""
    rows = epoch_rows(table.root, table.handle, since=newest.epoch - LINE_EPOCHS)
    line = [CommittedEpoch.of(row) for row in rows if row.generation == newest.generation]
    gone = [
        index
        for index, epoch in enumerate(line)
        if any(not (table.root / name).exists() for _, name in epoch.files)
    ]
    # From a stamp on the line all later files are needed; the base itself needs none.
    return line[gone[-1] :] if gone else line


class Told(Protocol):
    """What a task is told of the committed state."""

    @property
    def root(self) -> TablePath: ...

    @property
    def cache(self) -> Path: ...

    @property
    def base(self) -> Stamp: ...

    @property
    def version(self) -> int: ...  # of the table, at base

    @property
    def line(self) -> tuple[CommittedEpoch, ...]: ...  # recent epochs in order, base last


class BucketStates:
    """The buckets of one kind of state, as a task sees them."""

    def __init__(
        self,
        told: Told,
        layout: TableLayout,
        hot_layout: Layout,
        parts: Collection[str],
        name: str,  # of the directories
    ) -> None:
        self._told = told
        self._hot_layout = hot_layout
        self._parts = parts
        self._name = name
        self._files = StateFiles(told.root, layout, parts)
        self._stamps = [epoch.stamp for epoch in told.line]

    def caught_up(self, bucket: int) -> HotState:
        """The state of a bucket, at base."""
        cache = on_this_host(self._told.cache)
        state = opened(cache / f"{self._name}-{bucket:04d}", self._hot_layout)
        catch_up(
            state, self._told.base, self._stamps, lambda stamp: self._steps(state, bucket, stamp)
        )
        return state

    def _steps(self, state: HotState, bucket: int, stamp: Stamp | None) -> Steps:
        """What the bucket lacks since `stamp`: recent epochs as this host remembers them or from
        the line's files; else the whole table."""
        told = self._told
        recent = [epoch for epoch in told.line if stamp is not None and epoch.stamp > stamp]
        known = stamp is not None and any(epoch.stamp == stamp for epoch in told.line)
        if known:
            for epoch in recent:
                remembered = state.recalled(epoch.stamp)
                if remembered is not None:
                    yield epoch.stamp, remembered
                else:
                    yield epoch.stamp, self._files.of_bucket(bucket, epoch.files)
            return
        for part_file in self._live:  # oldest first, so that the newest row of a key wins
            yield told.base, self._files.of_bucket(bucket, [part_file])

    @cached_property
    def _live(self) -> list[tuple[str, str]]:
        """The state files of the table at base; looked up once a task, and only for a rebuild."""
        return [
            (file.part, file.path)
            for file in live_files(opened_table(self._told.root, self._told.version))
            if file.part in self._parts
        ]


class StateFiles:
    """State files read back bucket by bucket. They are sorted by it; of large ones, whose row
    groups hold whole buckets, only the row groups of the bucket are read, each once in a row."""

    def __init__(self, root: TablePath, layout: TableLayout, parts: Collection[str]) -> None:
        self.root = root
        self.layout = layout
        self.parts = parts
        self._files: dict[str, tuple[pq.FileMetaData, list[tuple[int, int]]]] = {}
        self._read: dict[str, tuple[list[int], pa.Table, np.ndarray[Any, Any]]] = {}

    def of_bucket(self, bucket: int, files: Iterable[tuple[str, str]]) -> Upserts:
        found = Upserts([], [], [])
        for part, name in files:
            if part in self.parts:
                upserts = self.layout.read_upserts(**{part: self._rows(bucket, name)})
                found.groups += upserts.groups
                found.multisets += upserts.multisets
                found.timers += upserts.timers
        return found

    def _rows(self, bucket: int, name: str) -> pa.Table:
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
        start, end = np.searchsorted(buckets, [bucket, bucket + 1])
        return table.slice(start, end - start)


def _bucket_ranges(metadata: pq.FileMetaData) -> list[tuple[int, int]]:
    """Of each row group its first and its last bucket."""
    column = metadata.schema.names.index("bucket")
    found = []
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(column).statistics
        found.append((statistics.min, statistics.max))
    return found
