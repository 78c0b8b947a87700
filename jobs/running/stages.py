"""The stages of an epoch as Spark runs them, planned in the driver.

DecodeTask ─► parcels ─► shuffle by target ─► ViewsFold
    └─► images ─► shuffle by key ─► DedupeTask ─┘   with `dedupe` only
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.edge.kafka.offset_ranges import OffsetRange, count_planned_records
from jobs.edge.rows.weighted_rows import SPARK_PARCELS, TARGET
from jobs.edge.tasks.decode import DecodeTask
from jobs.edge.tasks.dedupe import DedupeTask
from jobs.edge.tasks.epoch import EpochTask
from jobs.edge.tasks.fold import OUTPUT_SCHEMA
from jobs.edge.tasks.fold_views import ViewsFold
from schemas.limits import FOLD_TASK_ROWS, SMALL_RANGE_RECORDS


@dataclass(slots=True)
class Stages:
    """Plans the stages of epochs."""

    spark: SparkSession
    cores: int

    def plan(
        self, decode: DecodeTask, dedupe: DedupeTask | None, fold: ViewsFold
    ) -> DataFrame | RDD[tuple[str, bytes]]:
        """Return the epoch's reports: of one stage, without SQL, if one task can do all of it."""
        targets = fold.targets
        if targets == 1:
            ranges = self.spark.sparkContext.parallelize(range(len(decode.ranges)), 1)
            return ranges.mapPartitions(EpochTask(decode, dedupe, fold))
        target = F.col(TARGET) % targets  # those of a second view follow the first one's
        sent = self._number_ranges(decode.ranges).mapInArrow(decode, SPARK_PARCELS)
        if dedupe is not None:
            sent = sent.repartitionById(targets, target).mapInArrow(dedupe, SPARK_PARCELS)
        return sent.repartitionById(targets, target).mapInArrow(fold, OUTPUT_SCHEMA)

    def _number_ranges(self, ranges: Sequence[OffsetRange]) -> DataFrame:
        """Return a frame of the ranges' numbers; small ranges share a task."""
        count = len(ranges)
        small = count_planned_records(ranges) <= count * SMALL_RANGE_RECORDS
        return self.spark.range(0, count, 1, min(count, self.cores) if small else count)

    def count_tasks(self, ranges: Sequence[OffsetRange]) -> int:
        """Return the number of fold tasks for these ranges."""
        return max(1, min(self.cores, -(-count_planned_records(ranges) // FOLD_TASK_ROWS)))
