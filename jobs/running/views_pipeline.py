"""The dataflow of an epoch for several views: one decoding, one commit.

DecodeTask ─► rows of each view, as parcels
   │ if no view has expressions: one shuffle ─► ViewsFold ─► files of all views
   │ otherwise, the parcels stay in Spark's memory until each view has read its own:
   ├─ view 1: rows ─► project ─► shuffle ─► FoldTask ─► files of view 1
   └─ view 2: ...
▼ driver: ONE Delta commit of all files; in the epoch row, the counters of each view
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.core.fold.rules import rules_of
from jobs.core.job.views import reading_plan
from jobs.core.plan.tree import Plan
from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.rows.late_rows import LATE
from jobs.edge.rows.weighted_rows import (
    BUCKET,
    PARCEL,
    REPORT,
    SPARK_PARCELS,
    TARGET,
    parcelling_of,
    unpack_parcels,
)
from jobs.edge.spark.bucket_column import bucket_column
from jobs.edge.spark.expressions import project
from jobs.edge.spark.kept_rows import keep_rows
from jobs.edge.spark.weighted_schema import OWN_COLUMNS, weighted_schema
from jobs.edge.state.bucket_states import hot_state_of
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.file_writer import AddedFile
from jobs.edge.tasks.body import task_body
from jobs.edge.tasks.decode import DecodeTask
from jobs.edge.tasks.decode_views import ViewInputs
from jobs.edge.tasks.fold import OUTPUT_SCHEMA, FoldTask
from jobs.edge.tasks.fold_views import ViewsFold
from jobs.running.outcome import Outcome
from jobs.running.pipeline import Pipeline
from jobs.running.subtable import Subtable
from jobs.running.views import VIEWS, RunningView, sum_views
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from schemas.table.view_path import place_name


def make_pipeline(
    spec: JobSpec,
    plans: Mapping[str, Plan],
    paths: JobDirectory,
    table: EpochTable,
    newest: EpochRow,
    **options: Any,
) -> Pipeline:
    """Return the pipeline of a job: with one query, or with several views."""
    plan = reading_plan(plans)
    caches = {name: hot_state_of(paths.at_view(name), table.handle) for name in plans}
    if spec.views is None:
        return Pipeline(spec, plan, table, newest, cache=caches[""], **options)
    first = next(iter(caches.values()))
    return ViewsPipeline(
        spec, plan, table, newest, plans=plans, caches=caches, cache=first, **options
    )


Failing = Mapping[int, tuple[tuple[int, str], ...]]


class ViewsPipeline(Pipeline):
    """Runs the epochs of a job with several views. Its `plan` has the columns of all of them."""

    def __init__(
        self, *arguments: Any, plans: Mapping[str, Plan], caches: Mapping[str, Path], **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        specs, files = self.spec.view_specs, self.table.live_files()
        self.views = [
            RunningView.of(
                number, name, specs[name], plan, self.table.root, caches[name], files, self.newest
            )
            for number, (name, plan) in enumerate(plans.items())
        ]
        self._observe_watermark()

    @property
    def subtables(self) -> list[Subtable]:
        shared = [] if self.views[0].name == "" else [Subtable("", self.plan, self.table.root)]
        return shared + [Subtable(view.name, view.plan, view.root) for view in self.views]

    @property
    def kept_names(self) -> set[str]:
        return {
            place_name(name, view.name)
            for view in self.views
            for epoch in view.recent_epochs
            for _, name in epoch.files
        }

    # --- an epoch in the driver ---------------------------------------------------------------

    def _is_due(self) -> bool:
        now = self.clock.now
        return any(view.due_work.due(now) is not None for view in self.views)

    def _count_data(self, outcome: Outcome) -> dict[str, Any]:
        counters = outcome.sum_range_counters()
        own = {view.name: view.count(outcome, data=True) for view in self.views}
        for view in self.views:
            timers = (fold.timers for fold in outcome.folds if fold.view == view.number)
            view.due_work.observe_fold(counters["rows"], timers)
        return counters | sum_views(own) | {VIEWS: own}

    def _do_due_work(self, outcome: Outcome, epoch: int, uuid: str) -> dict[str, Any]:
        for view in self.views:
            work = view.due_work.due(self.clock.now)
            if work is None:
                continue
            own = Outcome()
            self._fold_time(own, work, self._make_view_fold(view, epoch, uuid, work.now_ms))
            view.due_work.complete(work, (fold.timers for fold in own.folds))
            outcome.folds += own.folds
        shares = {view.name: view.count(outcome, data=False) for view in self.views}
        return sum_views(shares) | {VIEWS: shares}

    def _observe_watermark(self) -> None:
        for view in self.views:
            view.due_work.observe_watermark(self.clock.time.watermark)

    def _list_files(self, outcome: Outcome) -> list[AddedFile]:
        shared = [file for report in outcome.ranges for file in report.quarantine]
        return shared + [file for view in self.views for file in view.list_files(outcome)]

    def _finish_counters(self, counters: dict[str, Any]) -> dict[str, Any]:
        own = counters[VIEWS]
        return counters | {VIEWS: {view.name: view.share(own[view.name]) for view in self.views}}

    def _snapshot_time(self) -> dict[str, Any]:
        return self.clock.snapshot()  # the due work of a view is in its share

    def _extend_recent_epochs(self, row: EpochRow) -> None:
        for view in self.views:
            view.extend(row)

    # --- an epoch in Spark --------------------------------------------------------------------

    def _make_view_fold(self, view: RunningView, epoch: int, uuid: str, now: int) -> FoldTask:
        rules = rules_of(view.spec, withhold=view.due_work.withholds, closing=view.closing)
        return replace(
            self._make_fold_task(epoch, uuid, now),
            plan=view.plan,
            root=view.root,
            cache=view.cache,
            recent_epochs=tuple(view.recent_epochs),
            rules=rules,
            watermark=view.due_work.watermark,
            buckets=view.spec.state.buckets,
            view=view.number,
        )

    def _compute(
        self,
        ranges: tuple[OffsetRange, ...],
        epoch: int,
        uuid: str,
        failing: tuple[tuple[int, str], ...],
        horizons: Mapping[str, int],
    ) -> Outcome:
        return self._compute_views(ranges, epoch, uuid, {}, horizons)

    def _compute_without(
        self,
        outcome: Outcome,
        ranges: tuple[OffsetRange, ...],
        epoch: int,
        uuid: str,
        horizons: Mapping[str, int],
    ) -> Outcome:
        failing = {view.number: tuple(outcome.of_view(view.number).failing) for view in self.views}
        return self._compute_views(ranges, epoch, uuid, failing, horizons)

    def _compute_views(
        self,
        ranges: tuple[OffsetRange, ...],
        epoch: int,
        uuid: str,
        failing: Failing,
        horizons: Mapping[str, int],
    ) -> Outcome:
        """Run all stages over `ranges`; a view does not get its messages at `failing`."""
        now = self.clock.now
        folds = [
            self._make_view_fold(view, epoch, uuid, view.due_work.advance(now))
            for view in self.views
        ]
        targets = self._count_tasks(ranges)
        decode = replace(
            self._make_decode_task(ranges, epoch, uuid, horizons),
            bytes_max=self.task_bytes_max,
            failing=tuple(each for own in failing.values() for each in own),
            views=tuple(
                self._make_inputs(view, fold, targets, failing.get(view.number, ()))
                for view, fold in zip(self.views, folds, strict=True)
            ),
        )
        if self._all_plain:
            return self._collect(
                self._plan_parcels(decode, ViewsFold(tuple(folds), targets), targets)
            )
        sent = self._number_ranges(decode.ranges).mapInArrow(decode, SPARK_PARCELS)
        with keep_rows(sent):
            return self._collect(self._plan_branches(sent, decode, folds, targets))

    def _make_inputs(
        self,
        view: RunningView,
        fold: FoldTask,
        targets: int,
        failing: tuple[tuple[int, str], ...],
    ) -> ViewInputs:
        names = [column.name for column in self.plan.used]
        parcelling = None
        if self._all_plain:
            parcelling = parcelling_of(
                view.plan, view.spec.state.buckets, targets, with_heads=self.spec.drops_early
            )
            assert parcelling is not None
            parcelling = replace(parcelling, first=view.number * targets)
        return ViewInputs(
            view.number,
            view.name,
            view.plan,
            view.root,
            tuple(names.index(column.name) for column in view.plan.used),
            fold.deadline,
            parcelling,
            failing,
        )

    @cached_property
    def _all_plain(self) -> bool:
        """Whether no view has expressions that Spark evaluates."""
        return all(
            parcelling_of(view.plan, 1, 1, closes=view.closing is not None) is not None
            for view in self.views
        )

    @cached_property
    def _buckets(self) -> list[Any]:
        return [bucket_column(view.plan, view.spec.state.buckets) for view in self.views]

    def _plan_branches(
        self, sent: DataFrame, decode: DecodeTask, folds: list[FoldTask], targets: int
    ) -> DataFrame:
        """Return the epoch's reports; each view evaluates its expressions and has its shuffle."""
        reports = sent.where(F.col(REPORT).isNotNull())
        branches = [reports.select(F.lit("report").alias("kind"), F.col(REPORT).alias("payload"))]
        for view, fold in zip(decode.views, folds, strict=True):
            own_columns = OWN_COLUMNS if view.deadline is None else (*OWN_COLUMNS, LATE)
            parcels = sent.where((F.col(TARGET) == view.number) & F.col(PARCEL).isNotNull())
            rows = parcels.mapInArrow(unpack, weighted_schema(view.plan.image, own_columns))
            projected = project(rows, view.plan, own_columns)
            bucketed = projected.withColumn(BUCKET, self._buckets[view.number])
            shuffled = bucketed.repartitionById(targets, F.col(BUCKET))
            branches.append(shuffled.mapInArrow(fold, OUTPUT_SCHEMA))
        return reduce(DataFrame.unionAll, branches)


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the parcels of a view; Spark calls it in a worker."""
    with task_body():
        for batch in batches:
            for number in range(batch.num_rows):  # together they may be large
                one = batch.slice(number, 1)
                yield from unpack_parcels(pa.Table.from_batches([one])).to_batches()
