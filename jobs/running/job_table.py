"""The table of a starting job: open it at its newest epoch, or create it with epoch 0.

A table has the state of one query, with one number of buckets; a spec that says otherwise is
refused before anything is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

from jobs.core.fold.program import Program
from jobs.core.job.window_rules import closing_of
from jobs.core.plan.tree import Plan
from jobs.core.time.due_work import refuse_other_windows
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.kafka.source import first_offsets
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.epoch_files import TableLayout, now_ms
from jobs.running.failure import SpecMisfit
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow, TopicIdentity


def open_table(
    spec: JobSpec,
    plan: Plan,
    place: JobDirectory,
    admin: KafkaAdmin,
    topics: Mapping[str, TopicIdentity],
) -> tuple[EpochTable, EpochRow]:
    """Return the job's table and its newest epoch; create a new table with epoch 0."""
    layout = TableLayout(Program(plan))
    if EpochTable.exists(place.table):
        table = EpochTable.open(place.table, layout)
        newest = table.newest()
        if newest is not None:
            _require_same_query(spec, plan, place, newest)
            return table, newest
    else:
        table = EpochTable.create(place.table, layout)
    start = EpochRow(
        epoch=0,
        uuid=uuid4().hex,
        generation=now_ms(),
        kind="start",
        committed_at=now_ms() * 1_000,
        plan=plan.fingerprint,
        offsets=first_offsets(admin, spec.source.topics, spec.source.start),
        topics=dict(topics),
        counters={"groups": 0},
    )
    table.commit_epoch(start, (), durable=spec.durable)
    return table, start


def _require_same_query(spec: JobSpec, plan: Plan, place: JobDirectory, newest: EpochRow) -> None:
    if newest.plan != plan.fingerprint:
        raise SpecMisfit(
            f"job {spec.name!r} has the state of another query or other column types; use retally "
            f"evolve for the changed query, or the old spec in {place.spec}"
        )
    if not newest.fresh:
        reason = refuse_other_windows(newest.time.due_work, closing_of(spec, plan))
        if reason is not None:
            raise SpecMisfit(f"job {spec.name!r}: {reason}")


def require_same_buckets(spec: JobSpec, before: JobSpec | None, place: JobDirectory) -> None:
    """Raise SpecMisfit if the number of buckets changed: groups would be in other buckets."""
    if before is None or not EpochTable.exists(place.table):
        return
    buckets = before.state.buckets
    if buckets != spec.state.buckets:
        raise SpecMisfit(
            f"state.buckets is fixed for the life of a job: {spec.name!r} has {buckets}, "
            f"the spec now says {spec.state.buckets}; go back to {buckets}, or give the job a new "
            "name"
        )


def require_time_left(spec: JobSpec, newest: EpochRow) -> None:
    """Raise SpecMisfit if the job was drained: every new row would be late."""
    if newest.time.ended:
        raise SpecMisfit(
            f"job {spec.name!r} was drained, so its time has ended at epoch {newest.epoch}; rewind "
            "it to an epoch before that, or clone one"
        )
