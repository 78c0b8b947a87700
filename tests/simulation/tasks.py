"""What runs in Spark's workers, done here by the core: ranges decoded, buckets folded.

The order inside a task is the real one (state brought to the base by BucketStates and `catch_up`,
folded on a view, remembered, files written and named); Arrow, Parquet and the shuffle are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from jobs.core.fold.fold import FoldContext
from jobs.core.fold.sessions import fold_bundle
from jobs.core.fold.state import Upserts
from jobs.core.homes import ONE_TASK
from jobs.core.plan.bucket import bucket_of
from jobs.core.values.change import Changes, Filtered, Rejected, Skipped
from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.state.bucket_states import BucketStates, stamp_of
from jobs.edge.table.epoch_files import SEQ_BUCKET_BITS
from jobs.edge.table.file_writer import AddedFile, EpochAttempt, file_name
from jobs.edge.tasks.fold import FoldTask
from jobs.edge.tasks.fold_inputs import FoldReport
from jobs.edge.tasks.range_report import RangeReport
from jobs.reading.files import LiveFile, files_of_view
from jobs.reading.parts import ACCUMULATORS, CHANGELOG, QUARANTINE
from jobs.running.outcome import Outcome
from jobs.running.pipeline import Pipeline
from schemas.table.epoch import EpochRow
from schemas.table.view_path import place_name, split_root
from tests.simulation.jobs import SimulatedView, Weighted
from tests.simulation.joins import joined
from tests.simulation.neighbours import Handle, Place, Source

if TYPE_CHECKING:
    from tests.simulation.world import World


class Layout:
    """Of the table: an epoch's row is itself."""

    def epochs_table(self, row: EpochRow) -> EpochRow:
        return row


LAYOUT = Layout()


def write_file(root: Place, name: str, row: EpochRow, *, durable: bool = False) -> AddedFile:
    return root.disk.write(name, row, (row.epoch, row.epoch), 1)


def live_files(handle: Handle) -> list[LiveFile]:
    files = handle.disk.live(handle.at)
    return files_of_view(files, handle.view) if handle.view else files


def read_epoch_rows(path: Place) -> list[EpochRow]:
    return [path.disk.files[path.name]]


def read_epoch_files(root: Place, names: Sequence[str]) -> list[EpochRow]:
    """The epoch rows in some files."""
    return [row for name in names for row in read_epoch_rows(root / name)]


def open_table(root: Place, version: int | None = None) -> Handle:
    return Handle(root.disk, version, split_root(root)[1])  # type: ignore[arg-type]


class StateFiles:
    def __init__(self, root: Place, _layout: Any, parts: Collection[str]) -> None:
        self._root, self._parts = root, parts

    def of_bucket(self, bucket: int, files: Iterable[tuple[str, str]]) -> Upserts:
        found = Upserts([], [], [])
        for part, name in files:
            if part in self._parts:
                upserts = self._root.disk.files[(self._root / name).name].get(bucket, Upserts())
                found.groups += upserts.groups
                found.multisets += upserts.multisets
        return found


class SimulatedPipeline(Pipeline):
    """The pipeline, with tasks of its own."""

    world: World

    def _compute(self, ranges: tuple[OffsetRange, ...], attempt: EpochAttempt) -> Outcome:
        now = self.clock.now
        folds = [
            self._make_fold_task(view, attempt, view.due_work.advance(now)) for view in self.views
        ]
        base, version = stamp_of(self.newest), self.table.version
        joins = self.inputs.make_join_tasks(ONE_TASK, attempt, base, version)
        return ran(self.world, folds, list(chain.from_iterable(joins)), ranges)


def ran(
    world: World, folds: Sequence[FoldTask], joins: Sequence[Any], ranges: Sequence[OffsetRange]
) -> Outcome:
    """All tasks of an epoch: ranges decoded for all readers, then joins, then each view folded."""
    outcome = Outcome()
    world.point("planned")
    rows: dict[int, list[Weighted]] = {number: [] for number, _ in enumerate(world.job.states)}
    for ordinal, planned in enumerate(ranges):
        report, shipped = decoded(world, folds[0], ordinal, planned)
        told = world.point("reported")
        sent = [number for number, own in shipped.items() if own]
        if told == "skip" and sent:  # a message that was read and got lost
            report.decoded -= 1
            report.shipped[sent[-1]] -= 1
            del shipped[sent[-1]][-1]
        for _ in range({"twice": 2, "missing": 0}.get(told or "", 1)):
            outcome.ranges.append(report)
            for number, more in shipped.items():
                rows[number] += more
        world.point("decoded")
    world.point("shuffled")
    if world.point("arrived") == "drop" and any(rows.values()):
        del world.random.choice([own for own in rows.values() if own])[-1]
    for task in joins:
        done, of_readers = joined(world, task, LAYOUT, rows)
        outcome.joins.append(done)
        for number, more in of_readers.items():
            rows[number] += more
        world.point("shuffled")
    for number, fold in enumerate(folds):
        outcome.folds.append(folded(world, world.job.views[number], fold, rows[number]))
        world.point("folded")
    return outcome


def decoded(
    world: World, task: FoldTask, ordinal: int, planned: OffsetRange
) -> tuple[RangeReport, dict[int, list[Weighted]]]:
    """One range, as a decode task reads it; with the rows of each reader."""
    report = RangeReport(number=ordinal, start=planned.start, source=planned.source)
    source, readers = world.broker.sources[planned.topic], world.job.readers[planned.source]
    report.unreadable = gone(source, planned)
    if report.unreadable is not None:
        return report, {}
    changes: list[tuple[int, Any]] = []
    rejects = []
    for offset, message in source.readable(planned.partition, planned.start, planned.end):
        report.topic, report.partition = planned.topic, planned.partition
        report.read += 1
        outcome = world.job.decoders[planned.source](message.value)
        if isinstance(outcome, Changes):
            report.decoded += 1
            report.rows += len(outcome.changes)
            changes += outcome.changes
        elif isinstance(outcome, Rejected):
            report.quarantined += 1
            rejects.append((planned.topic, planned.partition, offset))
        else:
            report.skipped += isinstance(outcome, Skipped)
            report.filtered += isinstance(outcome, Filtered)
    if rejects:
        name = file_name(QUARANTINE, task.attempt.epoch, task.attempt.uuid, f"m{ordinal}")
        epochs = (task.attempt.epoch, task.attempt.epoch)
        report.quarantine = [world.disk.write(name, rejects, epochs, len(rejects))]
    shipped = {each.number: each.consolidated(ordinal, changes) for each in readers}
    report.shipped = {number: len(own) for number, own in shipped.items()}
    return report, shipped


def gone(source: Source, planned: OffsetRange) -> str | None:
    """What a consumer says of a range whose beginning retention has taken."""
    first = source.first[planned.partition]
    return f"{planned}: the topic begins at {first}" if planned.start < first else None


def folded(world: World, view: SimulatedView, task: FoldTask, rows: list[Weighted]) -> FoldReport:
    """All buckets of a view, as a fold task folds them."""
    report = FoldReport(task=0, view=task.view, arrived=len(rows), counted=len(rows))
    program, encode = view.program, view.encode
    types = [named.type for named in view.plan.group]
    by_bucket: dict[int, list[Weighted]] = defaultdict(list)
    for row in rows:
        by_bucket[bucket_of(row[0], types, 3)].append(row)
    states = BucketStates(task.committed, LAYOUT, None)  # type: ignore[arg-type]
    changelog, state_files = [], {}
    for bucket, found in sorted(by_bucket.items()):
        keys, arguments, positions, weights = zip(*found, strict=True)
        deltas = program.gather(keys, *zip(*arguments, strict=True), positions, weights)
        state: Any = states.catch_up(bucket)
        with state.view(task.committed.base) as seen:
            context = FoldContext(encode, task.rules, task.now_ms, task.watermark)
            done = fold_bundle(program, seen, deltas, context)
            state.remember(task.attempt.epoch, task.attempt.uuid, done.upserts)
        first = bucket << SEQ_BUCKET_BITS
        changelog += [
            (first + n, str(op), key, row) for n, (op, key, row) in enumerate(done.changelog)
        ]
        state_files[bucket] = done.upserts
        dropped = report.counters.get("dropped_retractions", 0)
        report.counters["dropped_retractions"] = dropped + done.counters.dropped_retractions
        report.below_zero_delta += done.counters.below_zero_delta
    for part, content in ((CHANGELOG, changelog), (ACCUMULATORS, state_files)):
        if content:
            name = file_name(part, task.attempt.epoch, task.attempt.uuid, "f0")
            epochs = (task.attempt.epoch, task.attempt.epoch)
            placed = place_name(name, view.name)
            added = world.disk.write(placed, content, epochs, len(content))
            report.files.append(replace(added, path=name, part=part))
    report.changelog_rows = len(changelog)
    report.groups_delta = sum((op == "+I") - (op == "-D") for _, op, _, _ in changelog)
    return report
