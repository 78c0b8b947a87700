"""What runs in Spark's workers, done here by the core: ranges decoded, buckets folded.

The order inside a task is the real one (state brought to the base by BucketStates and `catch_up`,
folded on a view, remembered, files written and named); Arrow, Parquet and the shuffle are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from jobs.core.fold.fold import FoldContext
from jobs.core.fold.in_memory import plain_projection
from jobs.core.fold.sessions import fold_of
from jobs.core.fold.state import Upserts
from jobs.core.plan.bucket import bucket_of
from jobs.core.rows.consolidate import Consolidation, group_reader
from jobs.core.values.change import Changes, Filtered, Rejected, Skipped
from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.state.bucket_states import BucketStates
from jobs.edge.table.epoch_files import SEQ_BUCKET_BITS
from jobs.edge.table.file_writer import (
    AddedFile,
    file_name,
)
from jobs.edge.tasks.fold import FoldTask
from jobs.edge.tasks.fold_inputs import FoldReport
from jobs.edge.tasks.range_reading import RangeReport
from jobs.running.outcome import Outcome
from jobs.running.pipeline import Pipeline
from jobs.table.files import LiveFile
from jobs.table.parts import ACCUMULATORS, CHANGELOG, GROUP_STATE, QUARANTINE
from schemas.table.epoch import EpochRow
from tests.simulation.neighbours import Handle, Place, Source

if TYPE_CHECKING:
    from tests.simulation.world import World

Weighted = tuple[Any, Any, int, int]  # key, arguments, position, weight


class Layout:
    """Of the table: an epoch's row is itself."""

    def epochs_table(self, row: EpochRow) -> EpochRow:
        return row


LAYOUT = Layout()


def write_file(root: Place, name: str, row: EpochRow, *, durable: bool = False) -> AddedFile:
    return root.disk.write(name, row, (row.epoch, row.epoch), 1)


def live_files(handle: Handle) -> list[LiveFile]:
    return handle.disk.live(handle.at)


def read_epoch_rows(path: Place) -> list[EpochRow]:
    return [path.disk.files[path.name]]


def open_table(root: Place, version: int | None = None) -> Handle:
    return Handle(root.disk, version)


class StateFiles:
    def __init__(self, root: Place, _layout: Any, parts: Collection[str]) -> None:
        self._disk, self._parts = root.disk, parts

    def of_bucket(self, bucket: int, files: Iterable[tuple[str, str]]) -> Upserts:
        found = Upserts([], [], [])
        for part, name in files:
            if part in self._parts:
                upserts = self._disk.files[name].get(bucket, Upserts())
                found.groups += upserts.groups
                found.multisets += upserts.multisets
        return found


class SimulatedPipeline(Pipeline):
    """The pipeline, with tasks of its own."""

    world: World

    def _compute(
        self,
        ranges: tuple[OffsetRange, ...],
        epoch: int,
        uuid: str,
        failing: tuple[tuple[int, str], ...],
        horizons: Mapping[str, int],
    ) -> Outcome:
        world, outcome = self.world, Outcome()
        fold = self._make_fold_task(epoch, uuid, self.due_work.advance(self.clock.now))
        world.point("planned")
        rows: list[Weighted] = []
        for ordinal, planned in enumerate(ranges):
            report, shipped = decoded(world, fold, ordinal, planned)
            told = world.point("reported")
            if told == "skip" and shipped:  # a message that was read and got lost
                report.decoded -= 1
                report.shipped -= 1
                del shipped[-1]
            for _ in range({"twice": 2, "missing": 0}.get(told or "", 1)):
                outcome.ranges.append(report)
                rows += shipped
            world.point("decoded")
        world.point("shuffled")
        if world.point("arrived") == "drop" and rows:
            del rows[-1]
        outcome.folds.append(folded(world, fold, rows))
        world.point("folded")
        return outcome


def decoded(
    world: World, task: FoldTask, ordinal: int, planned: OffsetRange
) -> tuple[RangeReport, list[Weighted]]:
    """One range, as a decode task reads it."""
    from tests.simulation.world import DECODE, PLAN

    report = RangeReport(number=ordinal, start=planned.start)
    source = world.broker.source
    report.unreadable = gone(source, planned)
    if report.unreadable is not None:
        return report, []
    consolidation = Consolidation(ordinal)
    rejects = []
    for offset, message in source.readable(planned.partition, planned.start, planned.end):
        report.topic, report.partition = planned.topic, planned.partition
        report.read += 1
        outcome = DECODE(message.value)
        if isinstance(outcome, Changes):
            report.decoded += 1
            consolidation.add(outcome.changes)
        elif isinstance(outcome, Rejected):
            report.quarantined += 1
            rejects.append((planned.partition, offset))
        else:
            report.skipped += isinstance(outcome, Skipped)
            report.filtered += isinstance(outcome, Filtered)
    report.rows = consolidation.changes
    if rejects:
        name = file_name(QUARANTINE, task.epoch, task.uuid, f"m{ordinal}")
        epochs = (task.epoch, task.epoch)
        report.quarantine = [world.disk.write(name, rejects, epochs, len(rejects))]
    projection = plain_projection(PLAN)
    assert projection is not None
    shipped: list[Weighted] = []
    for row, position, weight in zip(*consolidation.consolidate(group_reader(PLAN)), strict=True):
        projected = projection(row)
        assert projected is not None
        shipped.append((*projected, position, weight))
    report.shipped = len(shipped)
    return report, shipped


def gone(source: Source, planned: OffsetRange) -> str | None:
    """What a consumer says of a range whose beginning retention has taken."""
    first = source.first[planned.partition]
    return f"{planned}: the topic begins at {first}" if planned.start < first else None


def folded(world: World, task: FoldTask, rows: list[Weighted]) -> FoldReport:
    """All buckets, as a fold task folds them."""
    from tests.simulation.world import ORDER, PLAN, PROGRAM

    report = FoldReport(task=0, arrived=len(rows))
    types = [named.type for named in PLAN.group]
    by_bucket: dict[int, list[Weighted]] = defaultdict(list)
    for row in rows:
        by_bucket[bucket_of(row[0], types, 3)].append(row)
    states = BucketStates(task, LAYOUT, None, GROUP_STATE, "bucket")  # type: ignore[arg-type]
    changelog, state_files = [], {}
    for bucket, found in sorted(by_bucket.items()):
        keys, arguments, positions, weights = zip(*found, strict=True)
        deltas = PROGRAM.gather(keys, *zip(*arguments, strict=True), positions, weights)
        state: Any = states.catch_up(bucket)
        with state.view(task.base) as view:
            context = FoldContext(ORDER, task.rules, task.now_ms, task.watermark)
            done = fold_of(PROGRAM)(PROGRAM, view, deltas, context)
            state.remember(task.epoch, task.uuid, done.upserts)
        first = bucket << SEQ_BUCKET_BITS
        changelog += [
            (first + n, str(op), key, row) for n, (op, key, row) in enumerate(done.changelog)
        ]
        state_files[bucket] = done.upserts
        report.counters["dropped_retractions"] = done.counters.dropped_retractions
    for part, content in ((CHANGELOG, changelog), (ACCUMULATORS, state_files)):
        if content:
            name = file_name(part, task.epoch, task.uuid, "f0")
            epochs = (task.epoch, task.epoch)
            report.files.append(world.disk.write(name, content, epochs, len(content)))
    report.changelog_rows = len(changelog)
    report.groups_delta = sum((op == "+I") - (op == "-D") for _, op, _, _ in changelog)
    return report
