"""Read results, changes and groups from a job's table at one version.

    accumulators ──┬──► results, current or as of epoch N (jobs.reading.results)
    changelog ─────┴──► changes since an epoch

One reader reads one version of the table, so all it returns belongs to one epoch. It reads the
files with Arrow, without Spark or a JVM. (Do not convert a list to an Arrow array here, or an
Arrow array to NumPy: either imports pandas, which takes longer than the rest of a command.)
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import DeltaTable

from jobs.core.fold.program import Program
from jobs.core.fold.state import Key
from jobs.core.job.job_plan import plan_of
from jobs.core.plan.bucket import bucket_of_group
from jobs.core.plan.tree import Plan
from jobs.core.values.change import Row
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.table.epoch_files import TableLayout
from jobs.edge.table.job_specs import resolve_next_spec
from jobs.reading.epoch_rows import drop_undone
from jobs.reading.files import LiveFile, open_table
from jobs.reading.group import GroupReader, searchable_values
from jobs.reading.history import HistoryGone, list_later_epochs
from jobs.reading.parts import ACCUMULATORS
from jobs.reading.results import read_results
from jobs.reading.row_shape import ChangeRow, RowShape
from jobs.reading.version import TableVersion, read_again
from schemas.documents.explanation import Explained
from schemas.limits import CHANGES_SLICE_ROWS, OBJECT_POLL_SECONDS
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from schemas.types.arrow_values import to_list
from schemas.types.moments import format_instant

Read = TypeVar("Read")

FOLLOW_SECONDS = 0.1
FOLLOW_REOPEN_SECONDS = 5.0


class ViewRequired(LookupError):
    """The job has only views, and the caller has named none."""


class TableReader(TableVersion):
    """Reads a job's table at one version, with the spec that it was written with."""

    def __init__(self, paths: JobDirectory, spec: JobSpec, plan: Plan, handle: DeltaTable) -> None:
        super().__init__(paths.table, handle)
        self.paths = paths
        self.spec = spec
        self.plan = plan
        self.layout = TableLayout(Program(plan))
        self.shape = RowShape(plan)

    @classmethod
    def open(cls, paths: JobDirectory, version: int | None = None) -> TableReader:
        """Open the newest version, with the spec that its newest epoch was written with.

        With `version`, open that one, which was the newest a moment ago.
        """
        handle = open_table(paths.table, version)
        resolve_next_spec(paths, handle)  # an evolve is running, or was killed
        spec = load_spec(paths.spec)
        if not spec.query:
            names = ", ".join(spec.view_specs)
            raise ViewRequired(
                f"job {paths.name!r} has no query of its own; name one of its views with --view: "
                f"{names}"
            )
        return cls(paths, spec, plan_of(spec), handle)

    @cached_property
    def kept_epochs(self) -> list[EpochRow]:
        """The rows of all epochs that retention has kept, in order."""
        rows = self.epochs()
        if not rows:
            raise HistoryGone(f"the table of job {self.paths.name!r} has no epoch yet")
        return rows

    @property
    def counted_epochs(self) -> list[EpochRow]:
        """The epochs of the state, after the start row with the sums of removed ones.

        Epochs that were undone are left out (see `drop_undone`).
        """
        start, kept = self.start, self.kept_epochs
        return drop_undone(
            kept if start is None or start.epoch == kept[0].epoch else [start, *kept]
        )

    def find_epoch(self, time_us: int) -> int:
        """Return the newest epoch that was committed by a time; raise HistoryGone if none was."""
        at = bisect_right([row.committed_at for row in self.kept_epochs], time_us)
        if at == 0:
            oldest = format_instant(self.kept_epochs[0].committed_at // 1_000)
            raise HistoryGone(
                f"job {self.paths.name!r}: no epoch was committed by then; "
                f"the oldest is of {oldest}"
            )
        return self.kept_epochs[at - 1].epoch

    @property
    def newest(self) -> EpochRow:
        return self.kept_epochs[-1]

    # --- results ------------------------------------------------------------------------------

    def explain(self, key: Key) -> Explained:
        """Return why a group's values are what they are; raise UnknownGroup if it never was."""
        reader = GroupReader(self, self.shape, key, self.spec.state.buckets, paths=self.paths)
        return reader.explain(self.paths.name)

    def results(self, epoch: int | None = None, key: Key | None = None) -> dict[Key, Row]:
        """Return the results as of `epoch`, or the current results; with `key`, of one group."""
        if epoch is not None:
            list_later_epochs(self, epoch, results=True)
        values = None if key is None else searchable_values(self.shape, key)
        found = read_results(self, self.shape, epoch, values=values)
        return found if key is None else {key: found[key]} if key in found else {}

    def results_in(self, files: Sequence[LiveFile]) -> dict[Key, Row]:
        """Return the results in these state files, which may be no longer live."""
        return read_results(self, self.shape, files=files)

    def is_in_own_buckets(self, files: Sequence[LiveFile]) -> bool:
        """Return whether each group of these state files is in its bucket, by the reader's spec."""
        names = ["bucket", *(name for name, _ in self.layout.group)]
        for file in files:
            if file.part != ACCUMULATORS:
                continue
            table, number = self.read(file, names), self.spec.state.buckets
            for bucket, key in zip(to_list(table["bucket"]), self.layout.keys(table), strict=True):
                if bucket != bucket_of_group(self.plan, key, number):
                    return False
        return True

    # --- changelog ----------------------------------------------------------------------------

    def changes(self, since: int | None = None) -> Iterator[ChangeRow]:
        """Return the changelog after epoch `since` (default: all), in the order of (epoch, seq)."""
        if since is None:
            return self._change_rows(self.kept_epochs[0].epoch - 1)
        if since < self.newest.epoch:
            list_later_epochs(self, since)
        return self._change_rows(since)

    def follow(self, since: int | None = None) -> Iterator[ChangeRow]:
        """Yield the changelog after epoch `since`, then each new commit's rows, without end."""
        at = since
        while True:
            try:
                rows, at = self.changes(at), self.newest.epoch
            except FileNotFoundError:  # the job compacted and swept a file meanwhile: read again
                rows = iter(())
            else:
                yield from rows
                self._await_version()
            self.handle = open_table(self.root)
            for cached in ("files", "kept_epochs"):
                self.__dict__.pop(cached, None)

    def _await_version(self) -> None:
        """Wait for the next version.

        Polling one file name is cheap. Delta may remove that log entry before the poll sees it, so
        open the table from time to time, too.
        """
        following = self.next_entry()
        reopen = time.monotonic() + FOLLOW_REOPEN_SECONDS
        while not following.exists():
            if time.monotonic() >= reopen:
                if open_table(self.root).version() > self.version:
                    return
                reopen = time.monotonic() + FOLLOW_REOPEN_SECONDS
            time.sleep(FOLLOW_SECONDS if isinstance(following, Path) else OBJECT_POLL_SECONDS)

    def _change_rows(self, after: int) -> Iterator[ChangeRow]:
        """Return the changelog after an epoch; its files are read before this returns."""
        table = self.changelog(after, self.newest.epoch)
        return iter(()) if table is None else self._list_changes(table)

    def _list_changes(self, table: pa.Table) -> Iterator[ChangeRow]:
        for start in range(0, table.num_rows, CHANGES_SLICE_ROWS):
            yield from self.shape.changes(table.slice(start, CHANGES_SLICE_ROWS))

    # --- files --------------------------------------------------------------------------------

    def part(self, part: str) -> list[dict[str, Any]]:
        """Return all rows of a part without upserts, such as quarantine, oldest epoch first."""
        return [row for table in self.tables(part) for row in table.to_pylist()]

    def tables(self, part: str) -> list[pa.Table]:
        return [self.read(file) for file in self.of_part(part)]


def open_views(paths: JobDirectory) -> dict[str, TableReader]:
    """Open every view of a job at one version; the job's own query is the view ""."""
    job = paths.at_view("")
    handle = open_table(job.table)
    resolve_next_spec(job, handle)
    views = load_spec(job.spec).view_specs
    return {name: TableReader.open(paths.at_view(name), handle.version()) for name in views}


def read_with_retries(paths: JobDirectory, read: Callable[[TableReader], Read]) -> Read:
    """Read a job's newest table version while the job may be running.

    The job may compact and sweep a file between the reads of the log and of the file. Then the
    table is opened and read again.
    """
    return read_again(lambda: TableReader.open(paths), read)
