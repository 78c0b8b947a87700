"""Read the snapshots of a job before its topics: an epoch for each part.

    epoch 0, the topics' first offsets ─► part 1 ─► .. ─► part 8 ─► the topics, from these offsets
                                           └── each row has the plan, and the parts until then

The topics must keep their records from these offsets on for as long: the job checks it between the
parts and before the first epoch of a topic. A start after a kill reads the parts that no epoch has.
A row of a part was read after the offsets of epoch 0 were noted, so each later change of it is
behind them in the topic.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from jobs.edge.files.log import FileLog
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.kafka.source import check_starts
from jobs.edge.process.failpoints import failpoint
from jobs.edge.spark.snapshot_source import SnapshotSource
from jobs.running.failure import SpecMisfit
from jobs.running.file_reading import require_same_lines
from jobs.running.outcome import EpochTooLarge, InputRefused
from jobs.running.pipeline import Pipeline
from jobs.running.sources import RunningSource
from schemas.spec.connections import Connections
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow, Offsets, TopicIdentity
from schemas.table.snapshot import (
    PLAN_FORMAT,
    SNAPSHOT,
    SNAPSHOT_PART,
    SnapshotPart,
    SnapshotPlan,
    SnapshotProgress,
)

log = logging.getLogger(__name__)
_KEEP_LONGER = (
    "the topic must keep its records until the snapshot before them is read; raise its retention "
    "above that time, or set source.start to a time before the files were written, and give the "
    "job a new name and sink topic"
)


def find_starts(
    admin: KafkaAdmin, newest: EpochRow, topics: Mapping[str, TopicIdentity]
) -> Offsets:
    """Return the offsets to read the topics from; raise SourceChanged if records there are gone."""
    counts = newest.counts
    loading = counts.snapshot_part or any(not each.done for each in counts.snapshot.values())
    advice = {"advice": _KEEP_LONGER} if loading else {}
    return check_starts(admin, newest.offsets, newest.topics, topics, **advice)


def require_same_sources(spec: JobSpec, logs: Mapping[str, FileLog], newest: EpochRow) -> None:
    """Raise SpecMisfit or FilesChanged if a start would go on with other rows."""
    require_same_snapshots(spec, newest)
    require_same_lines(logs, newest)


def require_same_snapshots(spec: JobSpec, newest: EpochRow) -> None:
    """Raise SpecMisfit if a snapshot came after the job's start, or is gone before its end."""
    known = newest.counts.snapshot
    for name, each in spec.source_specs.items():
        key = f"sources.{name}.snapshot" if name else "source.snapshot"
        if each.source.snapshot is not None and name not in known:
            raise SpecMisfit(
                f"job {spec.name!r} has started without {key}; remove it, or give the job a new "
                "name: a snapshot is read at the first start of a job"
            )
        plan = known[name].plan if name in known and not known[name].done else None
        if each.source.snapshot is not None and plan and plan.place != each.source.snapshot.place:
            raise SpecMisfit(
                f"{key} was {plan.place} when its first part was read, and {known[name].part} of "
                f"{plan.parts} parts are read; put it back, or give the job a new name"
            )
        if plan and plan.pieces and plan.format != PLAN_FORMAT:
            raise SpecMisfit(
                f"{key} was planned by another version of retally, which divides files into other "
                "parts; finish it with that version, or start the job with a new name"
            )
        if each.source.snapshot is None and name in known and not known[name].done:
            raise SpecMisfit(
                f"{key} is not read to its end ({known[name].part} parts); put it back"
            )


def read_snapshots(
    pipeline: Pipeline,
    connections: Connections,
    *,
    is_stopping: Callable[[], bool],
    report: Callable[[str], None],
    between: Callable[[], None],
) -> bool:
    """Read what is left of all snapshots, and return whether there was anything.

    Reports the progress as text, and calls `between` after each part.
    """
    left = [
        source
        for name, source in pipeline.inputs.sources.items()
        if source.spec.source.snapshot and not pipeline.newest.counts.snapshot[name].done
    ]
    for source in left:
        _Snapshot(pipeline, source, connections).run(is_stopping, report, between)
    return bool(left)


class _Snapshot:
    """The snapshot of one source while it is read."""

    def __init__(self, pipeline: Pipeline, source: RunningSource, connections: Connections) -> None:
        snapshot = source.spec.source.snapshot
        assert snapshot is not None
        self._pipeline = pipeline
        self._name, self._place = source.name, snapshot.place
        self._source = SnapshotSource(
            pipeline.spark, snapshot, source.plan.image, connections, pipeline.stages.cores
        )
        self._rows = 0  # in this process, as the rate is
        self._began = time.monotonic()

    def run(
        self,
        is_stopping: Callable[[], bool],
        report: Callable[[str], None],
        between: Callable[[], None],
    ) -> None:
        progress = self._progress
        if (plan := progress.plan) is None:
            report(f"{self._what}, finding its parts")
            plan = msgspec.structs.replace(self._source.make_plan(), place=self._place)
        while not progress.done and not is_stopping():
            report(self._describe(progress, plan))
            part = self._source.open(plan, progress.part)
            count = partial(self._count, progress, part.plan)
            try:
                row = self._pipeline.run_part(self._name, part, count)
            except EpochTooLarge:
                raise InputRefused(
                    f"part {progress.part + 1} of {plan.parts} of the {self._what} has more bytes "
                    "than a task may hold; use fewer columns, snapshot.jdbc.parts with more parts, "
                    "or files with smaller row groups, and give the job a new name"
                ) from None
            failpoint("snapshot_part")
            progress, plan = self._progress, part.plan
            self._rows += row.counts.rows
            log.info("%s at epoch %d", self._describe(progress, plan), row.epoch)
            between()

    @property
    def _progress(self) -> SnapshotProgress:
        return self._pipeline.newest.counts.snapshot[self._name]

    def _count(self, before: SnapshotProgress, plan: SnapshotPlan, rows: int) -> dict[str, Any]:
        """Return the counters of the epoch of the next part, behind which the plan goes on."""
        after = SnapshotProgress(part=before.part + 1, rows=before.rows + rows, plan=plan)
        part = SnapshotPart(source=self._name, part=after.part, parts=plan.parts, rows=rows)
        known = {**self._pipeline.newest.counts.snapshot, self._name: after}
        counters: dict[str, Any] = msgspec.to_builtins({SNAPSHOT: known, SNAPSHOT_PART: part})
        return counters

    @property
    def _what(self) -> str:
        return f"snapshot of {self._name}" if self._name else "snapshot"

    def _describe(self, progress: SnapshotProgress, plan: SnapshotPlan) -> str:
        seconds = max(time.monotonic() - self._began, 1e-3)
        rate = f", {self._rows / seconds:,.0f} rows/s" if self._rows else ""
        parts = f"{progress.part} of {plan.parts} parts"
        return f"{self._what}, {parts} read, {progress.rows:,} rows{rate}"
