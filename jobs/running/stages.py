"""The stages of an epoch as Spark runs them, planned in the driver.

SourcesDecode ─► parcels ─► shuffle by target ─► ViewsFold
    ├─► images ─► shuffle by key ─► DedupeTask ─┤   with `dedupe` only
    └─► rows ─► shuffle by join key ─► JoinTask ┘   with joins only

On a cluster all tasks but those that decode run where their buckets are at home.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.sql import SparkSession

from jobs.core.homes import Homes, Placement
from jobs.edge.kafka.offset_ranges import OffsetRange, count_planned_records
from jobs.edge.spark.executors import ExecutorList
from jobs.edge.spark.placed_tasks import PlacedTasks
from jobs.edge.tasks.fold import TimeTask
from jobs.edge.tasks.outbox import Outbox, Unpack, count_records
from jobs.edge.tasks.stage_functions import EpochTask, ParcelTask, TaskChain, ViewsFold
from schemas.limits import FOLD_TASK_ROWS, SMALL_RANGE_RECORDS


@dataclass(slots=True)
class Stages:
    """Plans the stages of epochs."""

    spark: SparkSession
    cores: int
    homes: Homes
    executors: ExecutorList | None = None  # of a cluster, where they come and go
    _placed: PlacedTasks = field(default_factory=PlacedTasks)

    def observe_executors(self) -> None:
        """Take the executors that the cluster has now."""
        if self.executors is not None:
            self.cores = self._context.defaultParallelism
            self.homes.observe(self.executors.read())

    def plan(
        self,
        ranges: Sequence[OffsetRange],
        decode: ParcelTask,
        between: Sequence[Sequence[ParcelTask]],
        fold: ViewsFold,
        placement: Placement,
    ) -> RDD[bytes]:
        """Return the epoch's reports: of one stage, if one task can do all of it.

        Of the tasks in `between`, those of one sequence share a stage."""
        numbers = range(len(ranges))
        if placement.tasks == 1:
            whole = EpochTask(TaskChain((decode, *chain(*between))), fold)
            return self._placed.run_numbers(self._context, numbers, whole, placement)
        tasks = self._count_decode_tasks(ranges)
        sent: RDD[Any] = self._context.parallelize(numbers, tasks)
        return self.plan_rows(sent, tasks, decode, between, fold, placement)

    def plan_rows(
        self,
        sent: RDD[Any],
        tasks: int,
        first: ParcelTask,
        between: Sequence[Sequence[ParcelTask]],
        fold: ViewsFold,
        placement: Placement,
    ) -> RDD[bytes]:
        """Return the reports of an epoch whose `first` task takes what so many tasks sent."""
        if tasks == placement.tasks == 1:  # one stage, as with ranges
            return sent.mapPartitions(EpochTask(TaskChain((first, *chain(*between))), fold))
        each = count_records(placement.tasks)
        bytes_max, records = fold.folds[0].attempt.bytes_max, each if placement.executors else None
        for following in ((first,), *((Unpack(), *some) for some in between)):
            outbox = Outbox(TaskChain(following), placement.tasks, records, bytes_max)
            sent = self._placed.shuffle(sent.mapPartitions(outbox), placement, tasks * each)
            tasks = placement.tasks
        return sent.mapPartitions(EpochTask(TaskChain((Unpack(),)), fold))

    def plan_time(self, task: TimeTask) -> RDD[bytes]:
        """Return the reports of an epoch without data."""
        tasks = Placement(min(self.cores, task.fold.buckets))
        numbers, placement = range(task.fold.buckets), self.homes.current or tasks
        return self._placed.run_numbers(self._context, numbers, task, placement)

    def place(self, ranges: Sequence[OffsetRange]) -> Placement:
        """Return the tasks after decoding, for these ranges."""
        rows = count_planned_records(ranges)
        return self.homes.place(max(1, min(self.cores, -(-rows // FOLD_TASK_ROWS))))

    def place_all(self) -> Placement:
        """Return the tasks after those that read a part of a snapshot."""
        return self.homes.place(self.cores)

    @property
    def _context(self) -> SparkContext:
        return self.spark.sparkContext

    def _count_decode_tasks(self, ranges: Sequence[OffsetRange]) -> int:
        """Return the number of tasks that decode; small ranges share one."""
        count = len(ranges)
        small = count_planned_records(ranges) <= count * SMALL_RANGE_RECORDS
        return min(count, self.cores) if small else count
