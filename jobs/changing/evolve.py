"""Evolve: a job continues with changed queries, or other sources, with the same table.

    epoch E, old queries ──► epoch E+1, kind "evolve"
        a view that stays    its state and due work, as they are
        one that changes     the old state under the new query; or, if it does not fit, a new state
                             from a replay of the topic; and the changes of its results
        a new one            the state of another view, or a replay; all its results as +I
        sides of joins       as they are; or, if other columns are read, those of a replay of all
        one that is gone     nothing: its files leave the table
        offsets              those of E; for one query, and with other topics, those of the
                             end of the replay

Consumers of the changelog stay correct without any action: a new column was NULL until now, and
only older records have a removed column. It is one commit, which also rewrites older changelog rows
with the new columns. If the group columns change, no changelog leads from old groups to new ones,
so history starts with this epoch. A replay runs in a shadow job, while the job itself may run; an
interrupted replay continues. The shadow job of views ends at the offsets of E, unless the topics
changed: then it replaces all views, and ends at the ends of the topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import msgspec
import pyarrow as pa
from deltalake import Schema
from msgspec.structs import replace

from jobs.changing.clone import copy_files
from jobs.changing.evolved_view import (
    KeptState,
    ReplayedState,
    State,
    ViewWriter,
    WrittenView,
    write_shared,
)
from jobs.changing.replayed_quarantine import SharedQuarantine
from jobs.core.job.job_evolution import JobEvolution, ViewEvolution, compare_specs
from jobs.core.job.views import JobInputs, fingerprints_of, plans_of, reading_plan
from jobs.edge.process.fence import WriterLock
from jobs.edge.table.delta_epochs import QUIET, EpochTable
from jobs.edge.table.epoch_files import TableLayout, layout_of
from jobs.edge.table.file_writer import EpochAttempt, by_part
from jobs.edge.table.job_specs import (
    remove_dropped_mirrors,
    resolve_next_spec,
    take_next_spec,
    write_specs,
)
from jobs.edge.table.reading import TableReader
from jobs.edge.table.table_location import prepare_new_table
from jobs.reading.epoch_rows import describe_missing_start, newest_of_job
from jobs.reading.files import LiveFile, open_table
from jobs.reading.parts import QUARANTINE, ROWS
from jobs.reading.version import TableVersion
from jobs.running.job_table import list_layouts, make_start_row, unite_schemas
from jobs.running.shadow_job import discard_hot_state, discard_shadow, read_newest_of_shadow
from schemas.directory.paths import JobDirectory
from schemas.spec.file import load_spec, write_spec
from schemas.spec.job import JobSpec, source_sections
from schemas.table.epoch import (
    DUE_WORK,
    VIEWS,
    EpochRow,
    Offsets,
    ViewShare,
    store_due_work,
)
from schemas.table.view_path import SHARED, split_part, view_root
from schemas.types.json_types import JsonObject
from schemas.types.moments import now_ms


class CannotEvolve(Exception):
    """The job cannot continue with this spec; nothing has been changed."""


@dataclass(frozen=True, slots=True)
class Evolved:
    """The result; without a row the job already had these queries."""

    evolution: JobEvolution
    row: EpochRow | None


@dataclass(frozen=True, slots=True)
class JobToEvolve:
    """A job at its newest epoch, with all views."""

    paths: JobDirectory
    spec: JobSpec  # with which that epoch was written
    table: TableVersion
    newest: EpochRow

    @classmethod
    def open(cls, paths: JobDirectory) -> JobToEvolve:
        """Open the newest version of the table; first finish an evolve that was killed."""
        handle = open_table(paths.table)
        resolve_next_spec(paths, handle)
        table = TableVersion(paths.table, handle)
        newest = newest_of_job(table.root, table.files)
        if newest is None:
            raise CannotEvolve(f"the table of job {paths.name!r} has no epoch yet")
        return cls(paths, load_spec(paths.spec), table, newest)

    def compare(self, spec: JobSpec) -> JobEvolution:
        """Return the effect of a spec; raise CannotEvolve if it needs a new job name."""
        found = compare_specs(self.spec, spec, self.newest, self.table.refusing)
        if found.fixed:
            raise CannotEvolve("; ".join(found.fixed) + "; give the changed query a new job name")
        return found

    def reader(self, view: str) -> TableReader:
        return TableReader.open(self.paths.at_view(view))

    def has_views(self, spec: JobSpec) -> bool:
        """Return whether the job has several views, or gets them by the spec."""
        return self.spec.views is not None or spec.views is not None

    def keeps_offsets(self, spec: JobSpec) -> bool:
        """Return whether a replay ends at the offsets of the job, as views that stay need it."""
        return self.has_views(spec) and spec.topics_by_source == self.spec.topics_by_source


@dataclass(frozen=True, slots=True)
class Replay:
    """A shadow job, and how far it reads; None: to the ends of the topics."""

    shadow: JobDirectory
    spec: JobSpec
    goal: Offsets | None


def compare(paths: JobDirectory, spec: JobSpec) -> JobEvolution:
    """Return the effect of a spec on a job's state."""
    job = JobToEvolve.open(paths)
    return job.compare(spec.with_column_order(job.spec))


def evolve(paths: JobDirectory, spec: JobSpec) -> Evolved:
    """Continue a stopped job's state under a spec; do nothing if it has these queries."""
    with WriterLock(paths.lock, paths.name):
        job = JobToEvolve.open(paths)
        spec = spec.with_column_order(job.spec)
        found = job.compare(spec)  # raises for other buckets under the same queries
        if job.newest.plans == fingerprints_of(spec) and not (found.lacking or found.other_topics):
            # done, except steps that a kill interrupted
            write_specs(spec, paths)
            paths.next_spec.unlink(missing_ok=True)
            remove_dropped_mirrors(spec, paths)
            discard_shadow(paths)
            return Evolved(JobEvolution(()), None)
        if found.reasons:
            again = "retally evolve --replay reads the topic again from the job's start"
            raise CannotEvolve("; ".join((*found.reasons, again)))
        states: dict[str, State] = {}
        for view in found.changed:
            assert view.source is not None
            own, source = plans_of(spec)[view.name], job.reader(view.source)
            states[view.name] = KeptState(source, own, view.found.sources)
        return Evolved(found, _Commit(job, spec, found.changed).write(states, job.newest))


def prepare_replay(paths: JobDirectory, spec: JobSpec) -> Replay:
    """Return the shadow job, which starts at the job's first offsets; create it if needed.

    A topic that the job has not read begins at the `start` of its source.
    """
    job = JobToEvolve.open(paths)
    spec = spec.with_column_order(job.spec)
    named = spec.source_specs.values()
    if any(each.source.snapshot for each in (*job.spec.source_specs.values(), *named)):
        raise CannotEvolve(
            f"job {paths.name!r} began with a snapshot, and the topic does not have its rows; give "
            "the changed query a new job name, which reads a snapshot of its own"
        )
    shadow, own = paths.shadow, _make_shadow_spec(job, spec)
    goal = job.newest.offsets if job.keeps_offsets(spec) else None
    # With the lock, a start of the job does not discard the shadow job meanwhile.
    with WriterLock(shadow.lock, shadow.name):
        if shadow.has_table and not _continues(shadow, own, goal):
            discard_shadow(paths)
        if not shadow.has_table:
            _create_shadow(job, own)
        write_specs(own, shadow)
        logs = shadow.data / "files"  # those of the job, which numbers more lines meanwhile
        if any("/" in topic for topic in own.topics) and not logs.is_symlink():
            logs.symlink_to("../../../files")
    return Replay(shadow, own, goal)


def _continues(shadow: JobDirectory, spec: JobSpec, goal: Offsets | None) -> bool:
    """Return whether the table of a shadow job is of this spec, and not beyond the goal."""
    begun = read_newest_of_shadow(shadow)
    return (
        begun is not None
        and begun.plans == fingerprints_of(spec)  # else it is of an earlier spec
        and shadow.spec.exists()
        and load_spec(shadow.spec).document() == spec.document()
        and (goal is None or not _list_ahead(goal, begun))
    )


def _make_shadow_spec(job: JobToEvolve, spec: JobSpec) -> JobSpec:
    """Return the spec of the shadow job: only the changed and the new views, without topics."""
    names = {view.name for view in job.compare(spec).replayed}
    document: JsonObject = spec.document()
    views = document.pop("views", {})
    outputs = ("sink", "mirror")
    of_query = () if "" in names else ("query", "empty", "emit", "allowed_lateness", "state")
    for key in (*outputs, *of_query):
        document.pop(key, None)
    for view in views.values():
        for key in outputs:
            view.pop(key, None)
    if names - {""}:
        document["views"] = {name: view for name, view in views.items() if name in names}
    for source in source_sections(document):
        source["group"] = f"retally-{spec.name}-next"
    return load_spec(document)


def _create_shadow(job: JobToEvolve, spec: JobSpec) -> None:
    """Create the shadow job with a start row at the first offsets of the job."""
    paths, plans = job.paths, plans_of(spec)
    first = job.table.start
    if first is None:
        raise CannotEvolve(describe_missing_start(paths.name))
    known = {topic: at for topic, at in first.offsets.items() if topic in spec.topics}
    discard_shadow(paths)
    beside = None if isinstance(paths.table, Path) else paths.table.parent
    building = prepare_new_table(paths.shadow, beside)
    layouts = list_layouts(spec, plans)
    table = EpochTable.create(building.table, layouts[0], unite_schemas(layouts))
    topics = {name: topic for name, topic in first.topics.items() if name in known}
    plan = reading_plan(plans).fingerprint
    start = make_start_row(spec, plan, fingerprints_of(spec), known, topics)
    if began := {topic: at for topic, at in job.newest.counts.began.items() if topic in known}:
        start = replace(start, counters=start.counters | {"began": began})
    table.commit_epoch(start, (), durable=spec.durable)
    building.activate()


def activate_replay(paths: JobDirectory, spec: JobSpec) -> Evolved:
    """Replace the state of a stopped job's changed views by that of its shadow job."""
    with WriterLock(paths.lock, paths.name):
        job = JobToEvolve.open(paths)
        spec = spec.with_column_order(job.spec)
        found = job.compare(spec)
        views = [paths.shadow.at_view(view.name) for view in found.replayed]
        readers = {each.view: TableReader.open(each) for each in views}
        at = job.newest
        for reader in readers.values():
            _require_caught_up(job.newest, reader.newest, spec.topics)
            if not job.keeps_offsets(spec):
                at = reader.newest
            elif ahead := _list_ahead(job.newest.offsets, reader.newest):
                raise CannotEvolve(f"{ahead[0]}; run the same command once more")
        if len(readers) == len(spec.view_specs):  # no view has other rows than the topic any more
            shared, refusals = None, next(iter(readers.values()))
            at = _take_rows(at, refusals.newest)
        else:
            shared, refusals = _require_agreement(job, readers), None
        states: dict[str, State] = {
            name: ReplayedState(each, shared) for name, each in readers.items()
        }
        row = _Commit(job, spec, found.replayed).write(states, at, refusals)
    discard_shadow(paths)
    return Evolved(found, row)


def _take_rows(at: EpochRow, shadow: EpochRow) -> EpochRow:
    """Return the row with what a replay of all views says of rows; nobody has moved offsets."""
    of_rows = ("images", "failing_rows", "failing_reason")
    counters = {name: n for name, n in at.counters.items() if name not in ("moved", *of_rows)}
    known = {name: n for name, n in shadow.counters.items() if name in of_rows}
    truncations = shadow.watermarks.get("truncations")
    time = {} if truncations is None else {"truncations": truncations}
    watermarks = {**at.watermarks, **time}
    return replace(at, counters={**counters, **known}, watermarks=watermarks)


def _require_caught_up(newest: EpochRow, shadow: EpochRow, topics: Iterable[str]) -> None:
    """Raise CannotEvolve if the replay is behind the job: its results must not go back."""
    for topic in topics:
        for partition, offset in newest.offsets.get(topic, {}).items():
            reached = shadow.offsets.get(topic, {}).get(partition, 0)
            if reached < offset:
                raise CannotEvolve(
                    f"{topic}/{partition} was read again up to {reached}, and the job is at "
                    f"{offset}; run the same command once more"
                )


def _list_ahead(goal: Offsets, shadow: EpochRow) -> list[str]:
    """Return the partitions of which the shadow job has read more than the job."""
    return [
        f"{topic}/{partition} was read again up to {reached}, and the job is at {offset}"
        for topic, partitions in shadow.offsets.items()
        for partition, reached in partitions.items()
        if reached > (offset := goal.get(topic, {}).get(partition, 0))
    ]


def _require_agreement(job: JobToEvolve, shadows: Mapping[str, TableReader]) -> SharedQuarantine:
    """Return the job's shared quarantine; raise CannotEvolve if a replayed view contradicts it."""
    shared = SharedQuarantine.read(job.table)
    for view, shadow in shadows.items():
        if conflict := shared.find_conflict(view, shadow):
            raise CannotEvolve(conflict)
    return shared


class _Commit:
    """The epoch that changes the queries of a job."""

    def __init__(self, job: JobToEvolve, spec: JobSpec, changed: Sequence[ViewEvolution]) -> None:
        self._job = job
        self._spec = spec
        self._specs = spec.view_specs
        self._plans = plans_of(spec)
        self._layouts = {name: layout_of(plan) for name, plan in self._plans.items()}
        states = JobInputs.of(spec, self._plans).states
        self._kept = {name: plan for name, plan in states.items() if name}
        self._changed = changed
        newest = job.newest
        self._attempt = EpochAttempt(newest.epoch + 1, uuid4().hex, spec.durable)

    def write(
        self, states: Mapping[str, State], at: EpochRow, shadow: TableReader | None = None
    ) -> EpochRow:
        """Write all files, commit them with the time and offsets of `at`, activate the spec.

        With `shadow`, what it has for all views replaces the shared quarantine and images.
        """
        job, spec, paths = self._job, self._spec, self._job.paths
        layouts = [self._layouts[view.name] for view in self._changed]
        layouts += [layout_of(plan) for plan in self._kept.values()]
        several = job.has_views(spec) or spec.sources is not None
        _add_columns(job.table, layouts, of_views=several)
        written = {view.name: self._write_view(view, states[view.name]) for view in self._changed}
        row = self._make_row(written, at)
        gone = self._list_replaced(replayed=shadow is not None)
        removed = [file for file in job.table.files if _is_of_view(file, gone)]
        removed += [file for view in written.values() for file in view.removed]
        added = [file for view in written.values() for file in view.added]
        if shadow is not None and job.has_views(spec):
            removed += [file for file in job.table.files if file.part in (QUARANTINE, ROWS)]
            plan = reading_plan(self._plans)
            added += write_shared(shadow, plan, job.table.root, self._attempt)
        if shadow is not None:
            of_all = TableVersion(shadow.paths.at_view("").table)
            root, attempt = job.table.root, self._attempt
            added += copy_files(self._kept, of_all.files, of_all.root, root, attempt)
        row = replace(row, files=by_part(added))
        table = EpochTable.open(job.table.root, next(iter(self._layouts.values())))
        write_spec(paths.next_spec, spec)
        table.commit_epoch(row, added, removed, durable=spec.durable)
        take_next_spec(paths)
        remove_dropped_mirrors(spec, paths)
        for name in gone:
            discard_hot_state(paths.at_view(name), job.table.handle)
        return row

    def _list_replaced(self, *, replayed: bool) -> list[str]:
        """Return the views that are gone, and what else was kept and is gone, or replaced."""
        before = self._job.spec
        kept = [name for name in JobInputs.of(before, plans_of(before)).states if name]
        views = [name for name in before.view_specs if name not in self._plans]
        return views + [name for name in kept if replayed or name not in self._kept]

    def _write_view(self, view: ViewEvolution, state: State) -> WrittenView:
        job, name = self._job, view.name
        writer = ViewWriter(
            view_root(job.table.root, name),
            self._attempt,
            name,
            self._specs[name],
            self._plans[name],
            None if view.new else job.reader(name),
            begins=view.begins,
            shares_parts=not name and job.has_views(self._spec),
        )
        return writer.write(state)

    def _make_row(self, written: Mapping[str, WrittenView], at: EpochRow) -> EpochRow:
        newest, spec = self._job.newest, self._spec
        shares = {
            name: replace(
                written[name].share if name in written else _carry_share(newest, name),
                buckets=self._specs[name].state.buckets,
            )
            for name in self._plans
        }
        time = {name: value for name, value in at.watermarks.items() if name != DUE_WORK}
        if spec.views is None:
            (share,) = shares.values()
            counters, time = share.counters, time | share.time
        else:
            groups = sum(share.counters["groups"] for share in shares.values())
            rows = sum(view.changelog_rows for view in written.values())
            counters = {"groups": groups, "changelog_rows": rows}
            counters[VIEWS] = msgspec.to_builtins(shares)
        counters |= at.state_counters
        if newest.counts.sources or spec.topics_by_source != self._job.spec.topics_by_source:
            counters["sources"] = spec.topics_by_source
        return EpochRow(
            epoch=self._attempt.epoch,
            uuid=self._attempt.uuid,
            generation=newest.generation + 1,
            kind="evolve",
            committed_at=now_ms() * 1_000,
            plan=reading_plan(self._plans).fingerprint,
            offsets=at.offsets,
            topics={**newest.topics, **at.topics},
            watermarks=time,
            counters=counters,
        )


def _is_of_view(file: LiveFile, views: Sequence[str]) -> bool:
    """Return whether a file of the table belongs to one of the views, and to no other."""
    owner, part = split_part(file.part)
    return owner in views and (owner != "" or part not in SHARED)


def _carry_share(newest: EpochRow, view: str) -> ViewShare:
    """Return the entry of a view that stays as it is."""
    own = newest.of_view(view)
    counters = {"groups": own.groups, "changelog_rows": 0, **newest.view_counters(view)}
    time = store_due_work(own.time.due_work)
    return ViewShare(plan=own.plan, counters=counters, time=time)


def _add_columns(table: TableVersion, layouts: Iterable[TableLayout], *, of_views: bool) -> None:
    """Add missing columns to the table, in a commit without rows.

    Raise CannotEvolve if a column exists with another type, because a column keeps its type. The
    columns of the state may differ between views (see `unite_schemas`).
    """
    have = {field.name: field.type for field in pa.schema(table.handle.schema().to_arrow())}
    names = {name.lower(): name for name in have}
    missing: dict[str, pa.DataType] = {}
    for layout in layouts:
        results = {name for name, _ in (*layout.group, *layout.kept)}
        for field in layout.table_schema:
            known = have.get(field.name, missing.get(field.name))
            if names.setdefault(field.name.lower(), field.name) != field.name:
                raise CannotEvolve(
                    f"column {field.name} differs only in case from column "
                    f"{names[field.name.lower()]} of the table; rename it with AS"
                )
            if known is None:
                missing[field.name] = field.type
            elif known != field.type and (field.name in results or not of_views):
                raise CannotEvolve(
                    f"column {field.name} of the table is {known}, but the new "
                    f"query needs {field.type}; give the column another name with AS, or the "
                    "changed query a new job name"
                )
    if missing:
        fields = Schema.from_arrow(pa.schema(list(missing.items()))).fields
        open_table(table.root).alter.add_columns(fields, post_commithook_properties=QUIET)
