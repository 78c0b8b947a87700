"""Table reading: what a job's table says, for everyone but its writer.

    accumulators ──newest row of a key wins──► current results
                                                    │ undo what the changelog says came later
    changelog ──────────────────────────────────────┴─► results as of epoch N
              └──► changes since an epoch
    accumulators, multisets, changelog, epochs ──► why one group is what it is

Everything is read at one version of the table, so it belongs to one epoch. No Spark and no JVM:
the files are read with Arrow. (And no list is made an Arrow array here, nor one a NumPy array:
either loads pandas, which takes longer than all the rest of a command.)
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from deltalake import DeltaTable

from jobs.core.explain.extreme_changes import Entry, Remembered, settled_until
from jobs.core.fold.program import Program
from jobs.core.fold.state import Group, Key, rank
from jobs.core.job.job_plan import plan_of
from jobs.core.plan.bucket import bucket_in
from jobs.core.plan.tree import Plan
from jobs.core.values.change import Op, Row, Value
from jobs.core.values.json_values import Json, renderer
from jobs.core.values.order_key import encoder
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.table.delta_epochs import LiveFile, epoch_rows, live_files, newest_epoch, opened
from jobs.edge.table.epoch_files import ACCUMULATORS, CHANGELOG, LATE, MULTISETS, TableLayout
from schemas.limits import OBJECT_LOOK_SECONDS
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from schemas.table.object_path import TablePath
from schemas.table.parquet_file import rows_in
from schemas.types.arrow_values import listed

Read = TypeVar("Read")

READS_MAX = 5  # a reader whose files were compacted and swept away looks again so often
CHANGES_SLICE_ROWS = 8_192
FOLLOW_SECONDS = 0.1
FOLLOW_REOPEN_SECONDS = 5.0


class HistoryGone(LookupError):
    """The epoch is not there, or the history that would be needed has been cleaned up."""


class ChangeRow(NamedTuple):
    """A row of the changelog with its place in it."""

    op: Op
    epoch: int
    seq: int
    key: Key
    result: Row


@dataclass(frozen=True, slots=True)
class Results:
    """The groups of a job and their results, in the order of the groups."""

    epoch: int
    rows: list[tuple[Key, Row]]


@dataclass(frozen=True, slots=True)
class GroupState:
    """What the state holds of one group. Entries: argument, value, multiplicity, in order."""

    changed: int | None  # the epoch that wrote the accumulator last
    group: Group | None
    entries: list[tuple[int, Value, int]]


class RowShape:
    """How a group and its results become one JSON object: names in SELECT order."""

    def __init__(self, plan: Plan) -> None:
        group = {named.name: (True, i, named.type) for i, named in enumerate(plan.group)}
        results = {name: (False, i, kind) for i, (name, kind) in enumerate(plan.results)}
        places = {**group, **results}
        self.names = plan.output
        self.types = [places[name][2] for name in plan.output]
        self._columns = [
            (name, of_group, index, renderer(sql_type))
            for name, (of_group, index, sql_type) in ((n, places[n]) for n in plan.output)
        ]
        self._key = [(named.name, renderer(named.type)) for named in plan.group]

    def row(self, key: Key, result: Row) -> dict[str, Json]:
        """The row as the query selects it; hidden group columns are not in it."""
        return {
            name: render(key[index] if of_group else result[index])
            for name, of_group, index, render in self._columns
        }

    def key(self, key: Key) -> dict[str, Json]:
        """The group columns, hidden ones too."""
        return {name: render(value) for (name, render), value in zip(self._key, key, strict=True)}


def take_next_spec(place: JobDirectory) -> None:
    """Make the spec of an evolve that was committed the job's own; whoever sees it first does."""
    with suppress(FileNotFoundError):
        place.next_spec.replace(place.spec)


class TableReader:
    """A job's table at one version."""

    def __init__(self, place: JobDirectory, spec: JobSpec, plan: Plan, handle: DeltaTable) -> None:
        self.place = place
        self.spec = spec
        self.plan = plan
        self.handle = handle
        self.layout = TableLayout(Program(plan))
        self.shape = RowShape(plan)
        self._types = [kind for _, kind in self.layout.group]

    @classmethod
    def open(cls, place: JobDirectory) -> TableReader:
        """The table as it is now; what its columns mean is in the job's spec."""
        handle = opened(place.table)
        if place.next_spec.exists():  # an evolve is running, or was killed
            newest = newest_epoch(place.table, handle)
            if (
                newest is not None
                and plan_of(load_spec(place.next_spec)).fingerprint == newest.plan
            ):
                take_next_spec(place)
        spec = load_spec(place.spec)
        return cls(place, spec, plan_of(spec), handle)

    @property
    def root(self) -> TablePath:
        return self.place.table

    @property
    def version(self) -> int:
        return self.handle.version()

    @cached_property
    def files(self) -> list[LiveFile]:
        return live_files(self.handle)

    @cached_property
    def epochs(self) -> list[EpochRow]:
        """The rows of all epochs that are still known, in order."""
        rows = epoch_rows(self.root, self.handle)
        if not rows:
            raise HistoryGone(f"the table of job {self.place.name!r} has no epoch yet")
        return rows

    @property
    def newest(self) -> EpochRow:
        return self.epochs[-1]

    # --- results ------------------------------------------------------------------------------

    def results(self, epoch: int | None = None, key: Key | None = None) -> Results:
        """The results now, or as they were after `epoch`; of one group with `key`."""
        at = self.newest.epoch if epoch is None else epoch
        if epoch is not None:
            self._require_epoch(epoch)
        found = self._current(self.files, key)
        if at < self.newest.epoch:
            _undo(found, self._changes_after(at, key))
        order = encoder(tuple(self._types))
        return Results(at, sorted(found.items(), key=lambda row: order(row[0])))

    def results_in(self, files: Sequence[LiveFile]) -> dict[Key, Row]:
        """What the state in these files shows, live ones or not."""
        return self._current(files, None)

    def _changes_after(self, epoch: int, key: Key | None) -> Iterable[ChangeRow]:
        table = self._changelog(epoch)
        self._require_complete(table, epoch)
        silent = [row.epoch for row in self.epochs if row.counters.get("expired_silently")]
        if silent and silent[-1] > epoch:
            raise HistoryGone(
                f"groups of job {self.place.name!r} have expired without a word up to epoch "
                f"{silent[-1]} (state.emit_expired: false); nobody knows what they were before"
            )
        rows = self._change_rows(table)
        return rows if key is None else (row for row in rows if row.key == key)

    def _require_epoch(self, epoch: int) -> None:
        oldest, newest = self.epochs[0].epoch, self.newest.epoch
        if not oldest <= epoch <= newest:
            raise HistoryGone(
                f"job {self.place.name!r} has no epoch {epoch}; its epochs are {oldest} to {newest}"
            )

    def _require_complete(self, changelog: pa.Table | None, after: int) -> None:
        """Retention removes the oldest changelog; every row after `after` must still be here."""
        present = Counter(() if changelog is None else listed(changelog["epoch"]))
        for row in reversed(self.epochs):
            if row.epoch <= after:
                return
            if present[row.epoch] != row.counters.get("changelog_rows", 0):
                raise HistoryGone(
                    f"the changelog after epoch {after} is not complete any more; the oldest epoch "
                    f"to go back to is {row.epoch}"
                )
            if row.begins:
                raise HistoryGone(
                    f"groups have other columns since epoch {row.epoch}; it is the oldest epoch to "
                    "go back to"
                )

    # --- changelog ----------------------------------------------------------------------------

    def changes(self, since: int | None = None) -> Iterator[ChangeRow]:
        """The changelog after epoch `since`, in the order of epochs and of rows in them."""
        after = self.epochs[0].epoch - 1 if since is None else since
        table = self._changelog(after)
        if since is not None:
            self._require_complete(table, since)
        return self._change_rows(table)

    def follow(self, since: int | None = None) -> Iterator[ChangeRow]:
        """The changelog after `since`, and then whatever is committed, for ever."""
        at = since
        while True:
            try:
                rows, at = self.changes(at), self.newest.epoch
            except FileNotFoundError:  # compacted and swept away meanwhile: look again
                rows = iter(())
            else:
                yield from rows
                self._await_version()
            self.handle = opened(self.root)
            for known in ("files", "epochs"):
                self.__dict__.pop(known, None)

    def _await_version(self) -> None:
        """Wait for the next version, by one look at a file name; now and then, since log entries
        are cleaned up, by opening the table."""
        following = self.root / "_delta_log" / f"{self.version + 1:020d}.json"
        reopen = time.monotonic() + FOLLOW_REOPEN_SECONDS
        while not following.exists():
            if time.monotonic() >= reopen:
                if opened(self.root).version() > self.version:
                    return
                reopen = time.monotonic() + FOLLOW_REOPEN_SECONDS
            time.sleep(FOLLOW_SECONDS if isinstance(following, Path) else OBJECT_LOOK_SECONDS)

    def _changelog(self, after: int) -> pa.Table | None:
        """The changelog after an epoch, in order; None where there is nothing."""
        files = [f for f in self._files_of(CHANGELOG) if f.epoch_max > after]
        if not files:
            return None
        table = pa.concat_tables([self._read(file) for file in files])
        table = table.sort_by([("epoch", "ascending"), ("seq", "ascending")])
        return table.slice(bisect_right(listed(table["epoch"]), after))

    def _change_rows(self, table: pa.Table | None) -> Iterator[ChangeRow]:
        if table is None:
            return
        for start in range(0, table.num_rows, CHANGES_SLICE_ROWS):
            piece = table.slice(start, CHANGES_SLICE_ROWS)
            rows = zip(
                listed(piece["op"]), listed(piece["epoch"]), listed(piece["seq"]),
                self.layout.keys(piece), self.layout.result_rows(piece), strict=True,
            )  # fmt: skip
            for op, epoch, seq, key, result in rows:
                yield ChangeRow(Op(op), epoch, seq, key, result)

    def require_history(self, after: int) -> None:
        """HistoryGone where changelog rows after an epoch have been cleaned up."""
        self._require_complete(self._changelog(after), after)

    # --- one group ----------------------------------------------------------------------------

    def group_state(self, key: Key) -> GroupState:
        """The accumulator of a group and its multisets, entries with a negative count too."""
        newest: tuple[int, Group | None] = (-1, None)
        for table in self._state(self.files, ACCUMULATORS, key):
            groups = self.layout.read_upserts(table, None).groups
            for epoch, (_, group) in zip(listed(table["epoch"]), groups, strict=True):
                if epoch >= newest[0]:
                    newest = (epoch, group)
        changed, group = newest
        if group is None:
            return GroupState(None, None, [])
        counts: dict[tuple[int, Value], tuple[int, int]] = {}
        for argument, value, epoch, count in self.entries(key):
            if epoch >= counts.get((argument, value), (-1, 0))[0]:
                counts[argument, value] = (epoch, count)
        found = [(argument, value, count) for (argument, value), (_, count) in counts.items()]
        found = [entry for entry in found if entry[2] != 0]
        found.sort(key=lambda entry: (entry[0], rank(entry[1])))
        return GroupState(changed, group, found)

    def entries(self, key: Key) -> list[Entry]:
        """Every row of the group's multisets that is still there, with the epoch that wrote it."""
        return [
            Entry(argument, value, epoch, count)
            for table in self._state(self.files, MULTISETS, key)
            for epoch, (argument, _, value, count) in zip(
                listed(table["epoch"]), self.layout.entries(table), strict=True
            )
        ]

    def remembered(self, key: Key) -> Remembered:
        """The group's multisets over the epochs, as far as they are kept apart."""
        live = {file.path for file in self.files if file.part == MULTISETS}
        return Remembered(self.entries(key), settled_until(live, self.epochs))

    def history(self, key: Key) -> list[ChangeRow]:
        """The changelog rows of one group, as far back as the changelog goes."""
        return [row for row in self._change_rows(self._changelog(-1)) if row.key == key]

    def late(self, key: Key) -> Iterator[dict[str, Any]]:
        """The rows that came too late for one group, oldest epochs first."""
        for file in self._files_of(LATE):
            table = self._read(file)
            keys = self.layout.keys(table)
            mine = [index for index, each in enumerate(keys) if each == key]
            for index in mine:
                yield table.slice(index, 1).to_pylist()[0]

    # --- files --------------------------------------------------------------------------------

    def part(self, part: str) -> list[dict[str, Any]]:
        """All rows of a part that is no state, such as quarantine, oldest epochs first."""
        return [row for table in self.tables(part) for row in table.to_pylist()]

    def tables(self, part: str) -> list[pa.Table]:
        return [self._read(file) for file in self._files_of(part)]

    def _current(self, files: Sequence[LiveFile], key: Key | None) -> dict[Key, Row]:
        """The results of the live groups: of each the row of the newest epoch."""
        newest: dict[Key, tuple[int, Row | None]] = {}
        for table in self._state(files, ACCUMULATORS, key):
            rows = zip(
                listed(table["epoch"]), listed(table["tombstone"]),
                self.layout.keys(table), self.layout.result_rows(table), strict=True,
            )  # fmt: skip
            for epoch, dead, group, result in rows:
                known = newest.get(group)
                if known is None or epoch >= known[0]:
                    newest[group] = (epoch, None if dead else result)
        return {group: row for group, (_, row) in newest.items() if row is not None}

    def _state(self, files: Sequence[LiveFile], part: str, key: Key | None) -> Iterator[pa.Table]:
        """The files of a state part, oldest epochs first; of one key only its rows.

        Files are sorted by bucket, so that most of a file is passed over.
        """
        for file in files:
            if file.part != part:
                continue
            table = self._read(file)
            if key is not None:
                bucket = bucket_in(self.plan, key, self.spec.state.buckets)
                buckets = listed(table["bucket"])
                start, end = bisect_left(buckets, bucket), bisect_right(buckets, bucket)
                table = table.slice(start, end - start)
                mine = [i for i, each in enumerate(self.layout.keys(table)) if each == key]
                table = pa.concat_tables([table.slice(index, 1) for index in mine] or [table[:0]])
            yield table

    def _files_of(self, part: str) -> list[LiveFile]:
        return [file for file in self.files if file.part == part]

    def _read(self, file: LiveFile) -> pa.Table:
        return rows_in(self.root / file.path)


def reading(place: JobDirectory, read: Callable[[TableReader], Read]) -> Read:
    """Read a table that its writer goes on changing: files that were compacted and swept away
    between the look at the log and the look at the file mean another look at both."""
    for _ in range(READS_MAX - 1):
        try:
            return read(TableReader.open(place))
        except FileNotFoundError:
            if not place.table.is_dir():
                raise
    return read(TableReader.open(place))


def _undo(found: dict[Key, Row], later: Iterable[ChangeRow]) -> None:
    """Turn results back: of each group its first later change says what was there before."""
    seen: set[Key] = set()
    for change in later:
        if change.key in seen:
            continue
        seen.add(change.key)
        if change.op is Op.INSERT:
            found.pop(change.key, None)
        else:
            found[change.key] = change.result
