"""Evolve: a job goes on under a changed query, in the same table and the same topic.

    epoch E, old query ──► epoch E+1, kind "evolve"
                           state      the kept one under the new query; or, where that does not
                                      do, one made anew from the topic's beginning
                           offsets    those of E; or how far the topic was read again
                           changelog  what turns the results of E into the new ones

Consumers of the changelog stay right without knowing of it: a column that is new was NULL until
now, one that is gone is in older records only. It is one commit like every other, after which the
columns of older changelog rows are those of the new query as well. Where groups are named by other
columns no changelog leads from the old ones to the new: history begins with that epoch. Reading the
topic again is done beside the job, which may run meanwhile, and taken up where it was left.
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

from jobs.changing.clone import as_rows_of, rows_of_part
from jobs.changing.rewind import way
from jobs.core.fold.fold import ChangelogRow, fold
from jobs.core.fold.program import Program
from jobs.core.fold.state import Counts, Group, Key, MemoryState, Upserts
from jobs.core.job.evolution import Carried, Evolution, Planned, Reshaped
from jobs.core.job.evolution import compared as differences
from jobs.core.job.job_plan import plan_of
from jobs.core.plan.tree import Plan
from jobs.core.values.change import Row
from jobs.core.values.order_key import encoder
from jobs.edge.process.fence import WriterLock
from jobs.edge.state.bucket_states import StateFiles, hot_state_of
from jobs.edge.table.delta_epochs import (
    QUIET,
    EpochTable,
    LiveFile,
    newest_epoch,
    opened,
    start_row,
)
from jobs.edge.table.epoch_files import (
    ACCUMULATORS,
    CHANGELOG,
    GROUP_STATE,
    MULTISETS,
    TIMERS,
    AddedFile,
    FileWriter,
    TableLayout,
    by_part,
    file_name,
    now_ms,
    write_file,
)
from jobs.edge.table.reading import TableReader, take_next_spec
from jobs.edge.table.savepoints import RESTORED
from jobs.edge.table.table_place import building_site
from schemas.spec.file import write_spec
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from schemas.table.parquet_file import naming, table_file
from schemas.table.places import JobDirectory, discard


class CannotEvolve(Exception):
    """The job cannot go on under this spec; nothing has been changed."""


@dataclass(frozen=True, slots=True)
class Evolved:
    """What was done; without a row there was nothing to do."""

    evolution: Evolution
    row: EpochRow | None


def compared(place: JobDirectory, spec: JobSpec) -> Evolution:
    """What a spec would make of a job."""
    reader = TableReader.open(place)
    return _compared(reader, spec, plan_of(spec))


def evolve(place: JobDirectory, spec: JobSpec) -> Evolved:
    """Go on with the state that a stopped job has; where it has this query, nothing is done."""
    lock = WriterLock(place.lock, place.name)
    try:
        reader, plan = TableReader.open(place), plan_of(spec)
        if reader.newest.plan == plan.fingerprint:  # done, but for what a kill may have left
            write_spec(place.spec, spec)
            _discard_shadow(place)
            return Evolved(_differences(reader, spec, plan), None)
        found = _compared(reader, spec, plan)
        if found.reasons:
            raise CannotEvolve("; ".join(found.reasons))
        kept = _Kept(reader, plan, found)
        row = _Commit(reader, spec, plan).of(kept, reader.newest, GROUP_STATE)
        return Evolved(found, row)
    finally:
        lock.release()


def begin_again(place: JobDirectory, spec: JobSpec) -> JobDirectory:
    """A job beside the job, at the offsets where that one began; one that was left goes on."""
    shadow, plan = place.shadow, plan_of(spec)
    if shadow.begun:
        begun = newest_epoch(shadow.table, opened(shadow.table))
        if begun is None or begun.plan != plan.fingerprint:  # for a query of before
            _discard_shadow(place)
    if shadow.begun:
        return shadow
    reader = TableReader.open(place)
    first = start_row(reader.root, reader.handle)
    if first is None:
        raise CannotEvolve(f"job {place.name!r} no longer knows where it began")
    _discard_shadow(place)
    beside = None if isinstance(place.table, Path) else place.table.parent
    building = building_site(shadow, beside)
    table = EpochTable.create(building.table, TableLayout(Program(plan)))
    start = msgspec.structs.replace(
        first, epoch=0, uuid=uuid4().hex, generation=now_ms(), committed_at=now_ms() * 1_000,
        plan=plan.fingerprint, watermarks={}, counters={"groups": 0}, files={},
        topics={name: known for name, known in first.topics.items() if name in first.offsets},
    )  # fmt: skip
    table.commit_epoch(start, (), durable=spec.durable)
    building.moves_in()
    return shadow


def take_over(place: JobDirectory, spec: JobSpec) -> Evolved:
    """Put the state that was made anew in the place of a stopped job's."""
    lock = WriterLock(place.lock, place.name)
    try:
        reader, plan = TableReader.open(place), plan_of(spec)
        found = _compared(reader, spec, plan)
        shadow = TableReader.open(place.shadow)
        _not_behind(reader.newest, shadow.newest)
        made = _MadeAnew(shadow)
        row = _Commit(reader, spec, plan, found.begins).of(made, shadow.newest, RESTORED)
    finally:
        lock.release()
    _discard_shadow(place)
    return Evolved(found, row)


def _discard_shadow(place: JobDirectory) -> None:
    """Remove the job beside the job, with its hot state on this host."""
    shadow = place.shadow
    if shadow.begun:
        with suppress(FileNotFoundError):
            shutil.rmtree(hot_state_of(shadow, opened(shadow.table)), ignore_errors=True)
    discard(shadow.data)


# --- what is there ----------------------------------------------------------------------------


def _compared(reader: TableReader, spec: JobSpec, plan: Plan) -> Evolution:
    """What is to become of the job; CannotEvolve where it would be another job."""
    found = _differences(reader, spec, plan)
    if found.fixed:
        raise CannotEvolve("; ".join(found.fixed) + "; give the changed query a new job name")
    return found


def _differences(reader: TableReader, spec: JobSpec, plan: Plan) -> Evolution:
    return differences(Planned(reader.spec, reader.plan), Planned(spec, plan), reader.newest)


def _not_behind(newest: EpochRow, shadow: EpochRow) -> None:
    """Nothing that the job has told may be forgotten, for however short."""
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

    results: dict[Key, Row]  # what it shows, once it is written

    def write(self, commit: _Commit) -> list[AddedFile]: ...


class _Kept:
    """The kept state, put under the new query bucket by bucket."""

    def __init__(self, reader: TableReader, plan: Plan, found: Evolution) -> None:
        self.results: dict[Key, Row] = {}
        self._reader = reader
        self._plan = plan
        self._sources = found.sources

    def write(self, commit: _Commit) -> list[AddedFile]:
        reader, layout, epoch = self._reader, commit.layout, commit.epoch
        carried = Carried(reader.layout.program, layout.program, self._sources)
        order = encoder(tuple(named.type for named in self._plan.group))
        state = StateFiles(reader.root, reader.layout, GROUP_STATE)
        named = [(file.part, file.path) for file in reader.files]
        with ExitStack() as open_files:
            writers = {part: open_files.enter_context(commit.writer(part)) for part in GROUP_STATE}
            for bucket in range(reader.spec.state.buckets):
                upserts = state.of_bucket(bucket, named)
                groups, entries = _at_last(upserts)
                deltas = {
                    key: carried.delta(key, group, entries.get(key, {}))
                    for key, group in groups.items()
                }
                folded = fold(layout.program, MemoryState(), deltas, order=order)
                self.results.update((key, row) for _, key, row in folded.changelog)
                made = folded.upserts
                written = [
                    (key, group and _as_written(group, groups[key])) for key, group in made.groups
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


class _MadeAnew:
    """The state that a topic read again has given."""

    def __init__(self, shadow: TableReader) -> None:
        self.results: dict[Key, Row] = {}
        self._shadow = shadow

    def write(self, commit: _Commit) -> list[AddedFile]:
        shadow = self._shadow
        self.results = dict(shadow.results().rows)
        files: list[AddedFile] = []
        for part in RESTORED:
            mine = [file for file in shadow.files if file.part == part]
            tables = rows_of_part(shadow, part, mine)
            schema, name = commit.layout.schema(part), commit.name(part)
            files += as_rows_of(commit.epoch, commit.root, name, schema, tables, commit.durable)
        return files


def _at_last(upserts: Upserts) -> tuple[dict[Key, Group], dict[Key, dict[int, Any]]]:
    """What upserts come to: the newest word on each group and entry."""
    groups = dict(upserts.groups)
    counts: dict[tuple[int, Key], Counts] = {}
    for argument, key, changed in upserts.multisets:
        counts.setdefault((argument, key), {}).update(changed)
    entries: dict[Key, dict[int, Any]] = {}
    for (argument, key), multiset in counts.items():
        present = [(value, count) for value, count in multiset.items() if count]
        entries.setdefault(key, {})[argument] = present
    return {key: group for key, group in groups.items() if group is not None}, entries


def _as_written(group: Group, old: Group) -> Group:
    """Its time goes on as it was."""
    return msgspec.structs.replace(group, written=old.written, timer=old.timer)


# --- the epoch --------------------------------------------------------------------------------


class _Commit:
    """The epoch in which a job becomes another. With `begins` its history begins there."""

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

    def of(self, state: _State, at: EpochRow, parts: Collection[str]) -> EpochRow:
        """Write everything, commit it, and let the spec follow."""
        reader, newest = self.reader, self.reader.newest
        _add_columns(reader, self.layout)
        before = {} if self.begins else dict(reader.results().rows)
        files = state.write(self)
        changelog, seqs = self._way(before, state.results)
        if changelog:
            rows = self.layout.changelog_table(self.epoch, seqs, changelog)
            files.append(write_file(self.root, self.name(CHANGELOG), rows, durable=self.durable))
        left = [*parts, CHANGELOG] if self.begins else parts
        removed = [file for file in reader.files if file.part in left]
        older = {} if self.begins else self._older_changes()
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
                **at.standing,
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
        return FileWriter(self.root, self.name(part), self.layout.schema(part),
                          durable=self.durable)  # fmt: skip

    def _way(
        self, before: Mapping[Key, Row], after: Mapping[Key, Row]
    ) -> tuple[list[ChangelogRow], list[int]]:
        """The changelog rows that lead from the old results to the new ones."""
        reshaped = Reshaped(self.reader.plan, self.plan)
        then = {key: reshaped.row(row) for key, row in before.items()}
        return way(self.plan, self.spec.state.buckets, then, after)

    def _older_changes(self) -> dict[LiveFile, AddedFile]:
        """Older rows of the changelog with the columns that it has now, file by file; none where
        the columns are the same."""
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
                    writer.write(_shaped(piece, new))
            found[file] = writer.added
        return found


def _shaped(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table[field.name] if field.name in table.column_names else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _add_columns(reader: TableReader, layout: TableLayout) -> None:
    """Columns that the table has not had yet. They are a commit of their own, which says nothing
    about rows; a column keeps its type for good."""
    have = pa.schema(reader.handle.schema().to_arrow())
    missing = []
    for field in layout.table_schema:
        if field.name not in have.names:
            missing.append(field)
        elif have.field(field.name).type != field.type:
            raise CannotEvolve(
                f"column {field.name} of the table is {have.field(field.name).type} and would be "
                f"{field.type}; give it another name with AS"
            )
    if missing:
        opened(reader.root).alter.add_columns(
            Schema.from_arrow(pa.schema(missing)).fields, post_commithook_properties=QUIET
        )
