"""The table of a starting job: open it at its newest epoch, or create it with epoch 0.

A table has the state of one query, with one number of buckets; a spec that says otherwise is
refused before anything is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn
from uuid import uuid4

import pyarrow as pa

from jobs.core.job.evolution import describe_other_topics, drops_topics
from jobs.core.job.job_evolution import LACKING_ROWS, find_taken_topics, lacks_rows
from jobs.core.job.views import JobInputs, fingerprints_of, reading_plan
from jobs.core.job.window_rules import closing_of
from jobs.core.plan.tree import Plan
from jobs.core.time.due_work import refuse_other_windows
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.kafka.source import first_offsets
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.epoch_files import TableLayout, layout_of
from jobs.edge.table.job_specs import resolve_next_spec
from jobs.reading.version import TableVersion
from jobs.running.failure import SpecMisfit
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec
from schemas.table.epoch import VIEWS, EpochRow, Offsets, TopicIdentity
from schemas.table.snapshot import SNAPSHOT
from schemas.types.moments import now_ms


def open_table(
    spec: JobSpec,
    plans: Mapping[str, Plan],
    paths: JobDirectory,
    admin: KafkaAdmin,
    topics: Mapping[str, TopicIdentity],
) -> tuple[EpochTable, EpochRow]:
    """Return the job's table and its newest epoch; create a new table with epoch 0."""
    layouts = list_layouts(spec, plans)
    if EpochTable.exists(paths.table):
        table = EpochTable.open(paths.table, layouts[0])
        newest = read_newest(spec, plans, paths, table)
        if newest is not None:
            return table, newest
    else:
        _require_kept_deletes(spec, admin)
        table = EpochTable.create(paths.table, layouts[0], unite_schemas(layouts))
    plan, offsets = reading_plan(plans).fingerprint, first_offsets(admin, spec)
    start = make_start_row(spec, plan, fingerprints_of(spec), offsets, topics)
    table.commit_epoch(start, (), durable=spec.durable)
    return table, start


def _require_kept_deletes(spec: JobSpec, admin: KafkaAdmin) -> None:
    """Raise SpecMisfit if compaction may remove deletes that must undo rows of a snapshot."""
    for each in spec.source_specs.values():
        source = each.source
        if source.snapshot is None or source.format == "upsert-json":  # it applies tombstones
            continue
        for topic in source.topics:
            policy = admin.cleanup_policy(topic)
            if not policy:
                raise SpecMisfit(
                    f"the cleanup.policy of topic {topic!r} cannot be read, and a compacted topic "
                    "loses deletes that the snapshot needs; allow the job's user DescribeConfigs "
                    "on the topic"
                )
            if "compact" in policy:
                raise SpecMisfit(
                    f"topic {topic!r} has cleanup.policy={policy}: compaction keeps the tombstone "
                    f"of a deleted row and removes its delete, which {source.format} needs, so "
                    "rows of the snapshot would never leave the results; set cleanup.policy=delete "
                    "before the rows are read or exported, or remove the snapshot"
                )


def make_start_row(
    spec: JobSpec,
    plan: str,
    of_views: Mapping[str, str],
    offsets: Offsets,
    topics: Mapping[str, TopicIdentity],
) -> EpochRow:
    """Return the first row of a table; the plans are fingerprints."""
    counters: dict[str, Any] = {"groups": 0}
    sources = spec.source_specs.items()
    if pending := [name for name, each in sources if each.source.snapshot]:
        counters[SNAPSHOT] = {name: {} for name in pending}
    if spec.views is not None:
        counters[VIEWS] = {
            name: {"plan": own, "counters": {"groups": 0}} for name, own in of_views.items()
        }
    return EpochRow(
        epoch=0,
        uuid=uuid4().hex,
        generation=now_ms(),
        kind="start",
        committed_at=now_ms() * 1_000,
        plan=plan,
        offsets=offsets,
        topics=dict(topics),
        counters=counters,
    )


def read_newest(
    spec: JobSpec, plans: Mapping[str, Plan], paths: JobDirectory, table: EpochTable
) -> EpochRow | None:
    """Return the newest epoch, None without any; raise SpecMisfit unless the spec continues it."""
    newest = table.newest()
    if newest is not None:
        _require_same_views(spec, plans, paths, newest)
    return newest


def list_layouts(spec: JobSpec, plans: Mapping[str, Plan]) -> list[TableLayout]:
    """Return the layout of each view, then those of what the table keeps beside the views."""
    kept = JobInputs.of(spec, plans).states
    return [layout_of(plan) for plan in (*plans.values(), *kept.values())]


def unite_schemas(layouts: Iterable[TableLayout]) -> pa.Schema:
    """Return the columns of all views.

    Columns of results have one type in all views (see `find_type_conflicts`). A column of the state
    may differ; then the table's schema has the type of the first view.
    """
    columns: dict[str, pa.DataType] = {}
    for layout in layouts:
        for field in layout.table_schema:
            columns.setdefault(field.name, field.type)
    return pa.schema(list(columns.items()))


def _require_same_views(
    spec: JobSpec, plans: Mapping[str, Plan], paths: JobDirectory, newest: EpochRow
) -> None:
    """Raise SpecMisfit unless the table has the state of exactly these views."""
    known = set(newest.views or [""])
    if known != set(plans):
        changed = ", ".join(repr(name) if name else "the query" for name in known ^ set(plans))
        raise SpecMisfit(
            f"job {spec.name!r} has started with other views, which differ in {changed}; use "
            f"retally evolve for the changed views, or the old spec in {paths.spec}"
        )
    for name, view in spec.view_specs.items():
        buckets = newest.buckets.get(name, view.state.buckets)  # else `require_same_buckets` knows
        if buckets != view.state.buckets:
            _refuse_buckets(spec, name, buckets)
        _require_same_query(view, plans[name], paths, newest.of_view(name))


def _require_same_query(spec: JobSpec, plan: Plan, paths: JobDirectory, newest: EpochRow) -> None:
    if newest.plan != plan.fingerprint:
        raise SpecMisfit(
            f"job {spec.name!r} has the state of another query or other column types; use retally "
            f"evolve for the changed query, or the old spec in {paths.spec}"
        )
    if not newest.fresh:
        reason = refuse_other_windows(newest.time.due_work, closing_of(spec, plan))
        if reason is not None:
            raise SpecMisfit(f"job {spec.name!r}: {reason}")


def load_last_spec(paths: JobDirectory) -> JobSpec | None:
    """Return the spec of the newest epoch; None without a table or spec. Hold the job's lock."""
    if not paths.has_table:
        return None
    if paths.next_spec.exists():  # an evolve was killed
        resolve_next_spec(paths, TableVersion(paths.table).handle)
    return load_spec(paths.spec) if paths.spec.exists() else None


def require_same_buckets(spec: JobSpec, before: JobSpec | None, paths: JobDirectory) -> None:
    """Raise SpecMisfit if the number of buckets changed: groups would be in other buckets."""
    if before is None or not EpochTable.exists(paths.table):
        return
    specs = before.view_specs
    for name, view in spec.view_specs.items():
        buckets = specs[name].state.buckets if name in specs else view.state.buckets
        if buckets != view.state.buckets:
            _refuse_buckets(spec, name, buckets)


def _refuse_buckets(spec: JobSpec, view: str, buckets: int) -> NoReturn:
    key = f"views.{view}.state.buckets" if view else "state.buckets"
    raise SpecMisfit(
        f"{key} is fixed for the life of a job: {spec.name!r} has {buckets}, the spec now says "
        f"{spec.view_specs[view].state.buckets}; go back to {buckets}, or give the job a new name"
    )


def require_same_sides(spec: JobSpec, before: JobSpec | None) -> None:
    """Raise SpecMisfit if the table has rows of other topics, or lacks some that queries need."""
    if before is None:
        return
    reason = describe_other_topics(before, spec) if drops_topics(before, spec) else ""
    if reason or lacks_rows(before, spec):
        reason = reason or LACKING_ROWS
        raise SpecMisfit(f"job {spec.name!r}: {reason}; use retally evolve --replay")


def require_own_topics(spec: JobSpec, before: JobSpec | None) -> None:
    """Raise SpecMisfit if a view would continue in the topic of another one."""
    taken = [] if before is None else list(find_taken_topics(before.view_specs, spec.view_specs))
    if taken:
        raise SpecMisfit(f"job {spec.name!r}: {'; '.join(taken)}")


def require_time_left(spec: JobSpec, newest: EpochRow) -> None:
    """Raise SpecMisfit if the job was drained: every new row would be late."""
    if newest.time.ended:
        raise SpecMisfit(
            f"job {spec.name!r} was drained, so its time has ended at epoch {newest.epoch}; rewind "
            "it to an epoch before that, or clone one"
        )
