"""Evolve: a job continues with a changed query, with the same table and the same topics.

    epoch E, old query ──► epoch E+1, kind "evolve"
                           state      the old state under the new query; or, if it does not fit,
                                      a new state from a replay of the topic
                           offsets    those of E; or the end offsets of the replay
                           changelog  the changes from the results of E to the new results

Consumers of the changelog stay correct without any action: a new column was NULL until now, and
only older records have a removed column. It is one commit, which also rewrites older changelog rows
with the new columns. If the group columns change, no changelog leads from old groups to new ones,
so history starts with this epoch. A replay runs in a shadow job, while the job itself may run; an
interrupted replay continues.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import msgspec
import pyarrow as pa
from deltalake import Schema

from jobs.changing.clone import read_part, write_part
from jobs.changing.one_query import require_one_query
from jobs.changing.rewind import build_changelog
from jobs.core.fold.fold import ChangelogRow, FoldContext, fold
from jobs.core.fold.program import Program
from jobs.core.fold.state import Counts, Group, Key, MemoryState, Upserts
from jobs.core.job.evolution import Evolution, GroupConverter, Planned, RowConverter
from jobs.core.job.evolution import compare_jobs as find_differences
from jobs.core.job.job_plan import plan_of
from jobs.core.plan.tree import Plan
from jobs.core.values.change import Row
from jobs.core.values.order_key import encoder
from jobs.edge.process.fence import WriterLock
from jobs.edge.rows.columns import conform
from jobs.edge.state.bucket_states import StateFiles, hot_state_of
from jobs.edge.table.delta_epochs import QUIET, EpochTable
from jobs.edge.table.epoch_files import (
    TableLayout,
    now_ms,
)
from jobs.edge.table.file_writer import (
    AddedFile,
    FileWriter,
    by_part,
    file_name,
    write_file,
)
from jobs.edge.table.reading import TableReader, take_next_spec
from jobs.edge.table.savepoints import RESTORED
from jobs.edge.table.table_location import prepare_new_table
from jobs.table.epoch_rows import newest_epoch
from jobs.table.files import LiveFile, live_files, open_table
from jobs.table.parts import ACCUMULATORS, CHANGELOG, GROUP_STATE, MULTISETS, TIMERS
from schemas.spec.file import write_spec
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from schemas.table.parquet_file import naming, table_file
from schemas.table.places import JobDirectory, discard


class CannotEvolve(Exception):
    """The job cannot continue with this spec; nothing has been changed."""


@dataclass(frozen=True, slots=True)
class Evolved:
    """The result; without a row the job already had this query."""

    evolution: Evolution
    row: EpochRow | None


def compare(place: JobDirectory, spec: JobSpec) -> Evolution:
    """Return the effect of a spec on a job's state."""
    require_one_query(place, "evolve")
    reader = TableReader.open(place)
    return _require_same_job(reader, spec, plan_of(spec))


def evolve(place: JobDirectory, spec: JobSpec) -> Evolved:
    """Continue a stopped job's state under a spec; do nothing if it has this query."""
    require_one_query(place, "evolve")
    lock = WriterLock(place.lock, place.name)
    try:
        reader, plan = TableReader.open(place), plan_of(spec)
        if reader.newest.plan == plan.fingerprint:  # done, except steps that a kill interrupted
            write_spec(place.spec, spec)
            _discard_shadow(place)
            return Evolved(_differences(reader, spec, plan), None)
        found = _require_same_job(reader, spec, plan)
        if found.reasons:
            raise CannotEvolve("; ".join(found.reasons))
        state = _KeptState(reader, plan, found)
        row = _Commit(reader, spec, plan).write(state, reader.newest, GROUP_STATE)
        return Evolved(found, row)
    finally:
        lock.release()


def prepare_replay(place: JobDirectory, spec: JobSpec) -> JobDirectory:
    """Return the shadow job, which starts at the job's first offsets; create it if needed."""
    require_one_query(place, "evolve")
    shadow, plan = place.shadow, plan_of(spec)
    if shadow.has_table:
        begun = newest_epoch(shadow.table, live_files(open_table(shadow.table)))
        if begun is None or begun.plan != plan.fingerprint:  # of an earlier query
            _discard_shadow(place)
    if shadow.has_table:
        return shadow
    reader = TableReader.open(place)
    first = reader.start
    if first is None:
        raise CannotEvolve(f"the table of job {place.name!r} has no start row, so no first offsets")
    _discard_shadow(place)
    beside = None if isinstance(place.table, Path) else place.table.parent
    building = prepare_new_table(shadow, beside)
    table = EpochTable.create(building.table, TableLayout(Program(plan)))
    start = msgspec.structs.replace(
        first,
        epoch=0,
        uuid=uuid4().hex,
        generation=now_ms(),
        committed_at=now_ms() * 1_000,
        plan=plan.fingerprint,
        watermarks={},
        counters={"groups": 0},
        files={},
        topics={name: known for name, known in first.topics.items() if name in first.offsets},
    )
    table.commit_epoch(start, (), durable=spec.durable)
    building.activate()
    return shadow


def activate_replay(place: JobDirectory, spec: JobSpec) -> Evolved:
    """Replace a stopped job's state by that of its shadow job."""
    require_one_query(place, "evolve")
    lock = WriterLock(place.lock, place.name)
    try:
        reader, plan = TableReader.open(place), plan_of(spec)
        found = _require_same_job(reader, spec, plan)
        shadow = TableReader.open(place.shadow)
        _require_caught_up(reader.newest, shadow.newest)
        state = _ReplayedState(shadow)
        row = _Commit(reader, spec, plan, found.begins).write(state, shadow.newest, RESTORED)
    finally:
        lock.release()
    _discard_shadow(place)
    return Evolved(found, row)


def _discard_shadow(place: JobDirectory) -> None:
    """Delete the shadow job with its hot state on this host."""
    shadow = place.shadow
    if shadow.has_table:
        with suppress(FileNotFoundError):
            shutil.rmtree(hot_state_of(shadow, open_table(shadow.table)), ignore_errors=True)
    discard(shadow.data)


# --- checks -----------------------------------------------------------------------------------


def _require_same_job(reader: TableReader, spec: JobSpec, plan: Plan) -> Evolution:
    """Return the effect of a spec; raise CannotEvolve if it needs a new job name."""
    found = _differences(reader, spec, plan)
    if found.fixed:
        raise CannotEvolve("; ".join(found.fixed) + "; give the changed query a new job name")
    return found


def _differences(reader: TableReader, spec: JobSpec, plan: Plan) -> Evolution:
    return find_differences(Planned(reader.spec, reader.plan), Planned(spec, plan), reader.newest)


def _require_caught_up(newest: EpochRow, shadow: EpochRow) -> None:
    """Raise CannotEvolve if the replay is behind the job: its results must not go back."""
    for topic, partitions in newest.offsets.items():
        for partition, offset in partitions.items():
            reached = shadow.offsets.get(topic, {}).get(partition, 0)
            if reached < offset:
                raise CannotEvolve(
                    f"{topic}/{partition} was read again up to {reached}, and the job is at "
                    f"{offset}; run the same command once more"
                )


# --- the new state ----------------------------------------------------------------------------


class _State(Protocol):
    """The state under the new query."""

    results: dict[Key, Row]  # of the new query; set by `write`

    def write(self, commit: _Commit) -> list[AddedFile]: ...


class _KeptState:
    """The job's own state, converted to the new query bucket by bucket."""

    def __init__(self, reader: TableReader, plan: Plan, found: Evolution) -> None:
        self.results: dict[Key, Row] = {}
        self._reader = reader
        self._plan = plan
        self._sources = found.sources

    def write(self, commit: _Commit) -> list[AddedFile]:
        reader, layout, epoch = self._reader, commit.layout, commit.epoch
        carried = GroupConverter(reader.layout.program, layout.program, self._sources)
        order = encoder(tuple(named.type for named in self._plan.group))
        state = StateFiles(reader.root, reader.layout, GROUP_STATE)
        named = [(file.part, file.path) for file in reader.files]
        with ExitStack() as open_files:
            writers = {part: open_files.enter_context(commit.writer(part)) for part in GROUP_STATE}
            for bucket in range(reader.spec.state.buckets):
                upserts = state.of_bucket(bucket, named)
                groups, entries = _collapse(upserts)
                deltas = {
                    key: carried.delta(key, group, entries.get(key, {}))
                    for key, group in groups.items()
                }
                folded = fold(layout.program, MemoryState(), deltas, FoldContext(order))
                self.results.update((key, row) for _, key, row in folded.changelog)
                made = folded.upserts
                written = [
                    (key, group and _keep_times(group, groups[key])) for key, group in made.groups
                ]
                timers = [each for each in dict(upserts.timers).items() if each[1]]
                tables = {
                    ACCUMULATORS: layout.accumulators_table(
                        epoch, [bucket] * len(written), written
                    ),
                    MULTISETS: layout.multisets_table(
                        epoch, [bucket] * len(made.multisets), made.multisets
                    ),
                    TIMERS: layout.timers_table(epoch, [bucket] * len(timers), timers),
                }
                for part, table in tables.items():
                    if table.num_rows:
                        writers[part].write(table)
        return [writer.added for writer in writers.values() if writer.rows]


class _ReplayedState:
    """The state of the shadow job, which has read the topic again."""

    def __init__(self, shadow: TableReader) -> None:
        self.results: dict[Key, Row] = {}
        self._shadow = shadow

    def write(self, commit: _Commit) -> list[AddedFile]:
        shadow = self._shadow
        self.results = dict(shadow.results().rows)
        files: list[AddedFile] = []
        for part in RESTORED:
            mine = [file for file in shadow.files if file.part == part]
            tables = read_part(shadow, part, mine)
            schema, name = commit.layout.schema(part), commit.name(part)
            files += write_part(commit.epoch, commit.root, name, schema, tables, commit.durable)
        return files


def _collapse(upserts: Upserts) -> tuple[dict[Key, Group], dict[Key, dict[int, Any]]]:
    """Return the newest value of each group, and its present multiset entries."""
    groups = dict(upserts.groups)
    counts: dict[tuple[int, Key], Counts] = {}
    for argument, key, changed in upserts.multisets:
        counts.setdefault((argument, key), {}).update(changed)
    entries: dict[Key, dict[int, Any]] = {}
    for (argument, key), multiset in counts.items():
        present = [(value, count) for value, count in multiset.items() if count]
        entries.setdefault(key, {})[argument] = present
    return {key: group for key, group in groups.items() if group is not None}, entries


def _keep_times(group: Group, old: Group) -> Group:
    """Return the group with the write time and the timer of the old one."""
    return msgspec.structs.replace(group, written=old.written, timer=old.timer)


# --- the epoch --------------------------------------------------------------------------------


class _Commit:
    """The epoch that changes the query. With `begins`, history starts with it."""

    def __init__(
        self, reader: TableReader, spec: JobSpec, plan: Plan, begins: bool = False
    ) -> None:
        self.reader = reader
        self.begins = begins
        self.spec = spec
        self.plan = plan
        self.layout = TableLayout(Program(plan))
        self.root = reader.root
        self.epoch = reader.newest.epoch + 1
        self.uuid = uuid4().hex
        self.durable = spec.durable

    def write(self, state: _State, at: EpochRow, parts: Collection[str]) -> EpochRow:
        """Write all files, commit them, and activate the spec."""
        reader, newest = self.reader, self.reader.newest
        _add_columns(reader, self.layout)
        before = {} if self.begins else dict(reader.results().rows)
        files = state.write(self)
        changelog, seqs = self._build_changelog(before, state.results)
        if changelog:
            rows = self.layout.changelog_table(self.epoch, seqs, changelog)
            files.append(write_file(self.root, self.name(CHANGELOG), rows, durable=self.durable))
        left = [*parts, CHANGELOG] if self.begins else parts
        removed = [file for file in reader.files if file.part in left]
        older = {} if self.begins else self._rewrite_changelog()
        row = EpochRow(
            epoch=self.epoch,
            uuid=self.uuid,
            generation=newest.generation + 1,
            kind="evolve",
            committed_at=now_ms() * 1_000,
            plan=self.plan.fingerprint,
            offsets=at.offsets,
            topics={**newest.topics, **at.topics},
            watermarks=at.watermarks,
            counters={
                "groups": len(state.results),
                "changelog_rows": len(changelog),
                **({"begins": 1} if self.begins else {}),
                **at.state_counters,
            },
            files=by_part(files),
        )
        table = EpochTable.open(self.root, self.layout)
        place = self.reader.place
        write_spec(place.next_spec, self.spec)
        table.commit_epoch(row, [*files, *older.values()], [*removed, *older], durable=self.durable)
        take_next_spec(place)
        return row

    def name(self, part: str) -> str:
        return file_name(part, self.epoch, self.uuid, "evolve")

    def writer(self, part: str) -> FileWriter:
        return FileWriter(
            self.root, self.name(part), self.layout.schema(part), durable=self.durable
        )

    def _build_changelog(
        self, before: Mapping[Key, Row], after: Mapping[Key, Row]
    ) -> tuple[list[ChangelogRow], list[int]]:
        """Return the changelog rows from the old results to the new ones, with their seqs."""
        reshaped = RowConverter(self.reader.plan, self.plan)
        then = {key: reshaped.row(row) for key, row in before.items()}
        return build_changelog(self.plan, self.spec.state.buckets, then, after)

    def _rewrite_changelog(self) -> dict[LiveFile, AddedFile]:
        """Rewrite older changelog files with the new columns; none if the columns are the same."""
        old, new = (layout.schema(CHANGELOG) for layout in (self.reader.layout, self.layout))
        if old == new:
            return {}
        found: dict[LiveFile, AddedFile] = {}
        for number, file in enumerate(f for f in self.reader.files if f.part == CHANGELOG):
            name = file_name(CHANGELOG, self.epoch, self.uuid, f"evolve-{number}")
            path = self.root / file.path
            rows = table_file(path)
            with FileWriter(self.root, name, new, durable=self.durable) as writer:
                for group in range(rows.num_row_groups):
                    with naming(path):
                        piece = rows.read_row_group(group)
                    writer.write(conform(piece, new))
            found[file] = writer.added
        return found


def _add_columns(reader: TableReader, layout: TableLayout) -> None:
    """Add missing columns to the table, in a commit without rows.

    Raise CannotEvolve if a column exists with another type, because a column keeps its type.
    """
    have = pa.schema(reader.handle.schema().to_arrow())
    missing = []
    for field in layout.table_schema:
        if field.name not in have.names:
            missing.append(field)
        elif have.field(field.name).type != field.type:
            raise CannotEvolve(
                f"column {field.name} of the table is {have.field(field.name).type}, but the new "
                f"query needs {field.type}; give the column another name with AS"
            )
    if missing:
        open_table(reader.root).alter.add_columns(
            Schema.from_arrow(pa.schema(missing)).fields, post_commithook_properties=QUIET
        )
