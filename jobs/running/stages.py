"""The stages of an epoch as Spark runs them, planned in the driver.

SourcesDecode ─► parcels ─► shuffle by target ─► ViewsFold
    ├─► images ─► shuffle by key ─► DedupeTask ─┤   with `dedupe` only
    └─► rows ─► shuffle by join key ─► JoinTask ┘   with joins only
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.edge.kafka.offset_ranges import OffsetRange, count_planned_records
from jobs.edge.rows.weighted_rows import SPARK_PARCELS, TARGET
from jobs.edge.tasks.fold import OUTPUT_SCHEMA
from jobs.edge.tasks.stage_functions import EpochTask, ParcelTask, TaskChain, ViewsFold
from schemas.limits import FOLD_TASK_ROWS, SMALL_RANGE_RECORDS


@dataclass(slots=True)
class Stages:
    """Plans the stages of epochs."""

    spark: SparkSession
    cores: int

    def plan(
        self,
        ranges: Sequence[OffsetRange],
        decode: ParcelTask,
        between: Sequence[Sequence[ParcelTask]],
        fold: ViewsFold,
    ) -> DataFrame | RDD[tuple[str, bytes]]:
        """Return the epoch's reports: of one stage, without SQL, if one task can do all of it.

        Of the tasks in `between`, those of one sequence share a stage."""
        targets = fold.targets
        if targets == 1:
            numbers = self.spark.sparkContext.parallelize(range(len(ranges)), 1)
            return numbers.mapPartitions(EpochTask(TaskChain((decode, *chain(*between))), fold))
        target = F.col(TARGET) % targets  # those of a second view follow the first one's
        decoding = TaskChain((decode,))
        sent = self._number_ranges(ranges).mapInArrow(decoding, SPARK_PARCELS)
        for tasks in between:
            chained = TaskChain(tuple(tasks))
            sent = sent.repartitionById(targets, target).mapInArrow(chained, SPARK_PARCELS)
        return sent.repartitionById(targets, target).mapInArrow(fold, OUTPUT_SCHEMA)

    def _number_ranges(self, ranges: Sequence[OffsetRange]) -> DataFrame:
        """Return a frame of the ranges' numbers; small ranges share a task."""
        count = len(ranges)
        small = count_planned_records(ranges) <= count * SMALL_RANGE_RECORDS
        return self.spark.range(0, count, 1, min(count, self.cores) if small else count)

    def count_tasks(self, ranges: Sequence[OffsetRange]) -> int:
        """Return the number of fold tasks for these ranges."""
        return max(1, min(self.cores, -(-count_planned_records(ranges) // FOLD_TASK_ROWS)))
