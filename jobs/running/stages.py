"""The stages of an epoch as Spark runs them, planned in the driver.

DecodeTask ─► parcels ─► shuffle by target ─► ViewsFold         the usual way, without SQL
DecodeTask ─► rows ─► Columns ─► shuffle by bucket ─► FoldTask  if Spark evaluates expressions
      └─► images ─► shuffle by key ─► DedupeTask ─► rows ─┘     with dedupe
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, reduce

import pyarrow as pa
from pyspark import RDD
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.core.plan.tree import Plan
from jobs.edge.kafka.offset_ranges import OffsetRange, count_planned_records
from jobs.edge.rows.late_rows import LATE
from jobs.edge.rows.weighted_rows import (
    BUCKET,
    PARCEL,
    POSITION,
    REPORT,
    SPARK_PARCELS,
    TARGET,
    unpack_parcels,
)
from jobs.edge.spark.bucket_column import bucket_column, change_bucket_column
from jobs.edge.spark.expressions import project
from jobs.edge.spark.kept_rows import keep_rows
from jobs.edge.spark.weighted_schema import IMAGE_COLUMNS, OWN_COLUMNS, weighted_schema
from jobs.edge.tasks.body import task_body
from jobs.edge.tasks.decode import DecodeTask
from jobs.edge.tasks.dedupe import ROW_BUCKET, DedupeTask
from jobs.edge.tasks.epoch import EpochTask
from jobs.edge.tasks.fold import FAILURE, OUTPUT_SCHEMA, FoldTask
from jobs.edge.tasks.fold_views import ViewsFold
from jobs.running.views import RunningView
from schemas.limits import FOLD_TASK_ROWS, SMALL_RANGE_RECORDS


@dataclass
class Stages:
    """Plans the stages of epochs."""

    spark: SparkSession
    plan: Plan  # has the columns of all views
    views: Sequence[RunningView]
    cores: int

    # A Column belongs to no DataFrame, and each of its nodes costs a call to the JVM: built once.

    @cached_property
    def _buckets(self) -> list[Column]:
        return [bucket_column(view.plan, view.spec.state.buckets) for view in self.views]

    @cached_property
    def _reported(self) -> Column:
        return F.col(REPORT).isNotNull()

    def plan_parcels(
        self, decode: DecodeTask, fold: ViewsFold
    ) -> DataFrame | RDD[tuple[str, bytes]]:
        """Return the epoch's reports: of one stage, without SQL, if one task can do all of it.

        Otherwise the rows of each fold task are sent as parcels, which Spark does not evaluate.
        """
        targets = fold.targets
        if targets == 1:
            ranges = self.spark.sparkContext.parallelize(range(len(decode.ranges)), 1)
            return ranges.mapPartitions(EpochTask(decode, fold))
        sent = self._number_ranges(decode.ranges).mapInArrow(decode, SPARK_PARCELS)
        target = F.col(TARGET) % targets  # those of a second view follow the first one's
        return sent.repartitionById(targets, target).mapInArrow(fold, OUTPUT_SCHEMA)

    def plan_rows(self, decode: DecodeTask, dedupe: DedupeTask | None, fold: FoldTask) -> DataFrame:
        """Return the epoch's reports, where Spark evaluates the expressions of the rows."""
        own_columns = OWN_COLUMNS if decode.deadline is None else (*OWN_COLUMNS, LATE)
        if dedupe is None:
            weighted = self._decode(decode, own_columns)
        else:
            images = self._decode(decode, IMAGE_COLUMNS)
            weighted = self._dedupe(images, decode.ranges, dedupe)
        projected = project(weighted, self.plan, own_columns, keep=self._reported)
        bucketed = projected.withColumn(BUCKET, self._buckets[0])
        return self._shuffle(bucketed, BUCKET, decode.ranges).mapInArrow(fold, OUTPUT_SCHEMA)

    @contextmanager
    def plan_branches(self, decode: DecodeTask, folds: Sequence[FoldTask]) -> Iterator[DataFrame]:
        """Give the epoch's reports, where Spark evaluates the expressions of some view.

        Each view has its shuffle; until it has read its parcels, they stay in Spark's memory."""
        sent = self._number_ranges(decode.ranges).mapInArrow(decode, SPARK_PARCELS)
        with keep_rows(sent):
            yield self._branch(sent, decode, folds)

    def _branch(self, sent: DataFrame, decode: DecodeTask, folds: Sequence[FoldTask]) -> DataFrame:
        reports = sent.where(F.col(REPORT).isNotNull())
        branches = [reports.select(F.lit("report").alias("kind"), F.col(REPORT).alias("payload"))]
        for view, fold in zip(decode.views, folds, strict=True):
            own_columns = OWN_COLUMNS if view.deadline is None else (*OWN_COLUMNS, LATE)
            parcels = sent.where((F.col(TARGET) == view.number) & F.col(PARCEL).isNotNull())
            rows = parcels.mapInArrow(unpack, weighted_schema(view.plan.image, own_columns))
            projected = project(rows, view.plan, own_columns)
            bucketed = projected.withColumn(BUCKET, self._buckets[view.number])
            shuffled = self._shuffle(bucketed, BUCKET, decode.ranges)
            branches.append(shuffled.mapInArrow(fold, OUTPUT_SCHEMA))
        return reduce(DataFrame.unionAll, branches)

    def _decode(self, decode: DecodeTask, own_columns: Sequence[str]) -> DataFrame:
        schema = weighted_schema(self.plan.image, own_columns)
        return self._number_ranges(decode.ranges).mapInArrow(decode, schema)

    def _number_ranges(self, ranges: Sequence[OffsetRange]) -> DataFrame:
        """Return a frame of the ranges' numbers; small ranges share a task."""
        count = len(ranges)
        small = count_planned_records(ranges) <= count * SMALL_RANGE_RECORDS
        return self.spark.range(0, count, 1, min(count, self.cores) if small else count)

    def _dedupe(
        self, images: DataFrame, ranges: Sequence[OffsetRange], dedupe: DedupeTask
    ) -> DataFrame:
        """Shuffle changes by primary key, and return the signed rows that follow from them."""
        bucket = change_bucket_column(self.plan, self.views[0].spec.state.buckets)
        shuffled = self._shuffle(images.withColumn(ROW_BUCKET, bucket), ROW_BUCKET, ranges)
        return shuffled.mapInArrow(dedupe, weighted_schema(self.plan.used, OWN_COLUMNS))

    def find_failing(self, decode: DecodeTask) -> tuple[tuple[int, str], ...]:
        """Return the positions and reasons of all images on which an expression fails."""
        projected = project(self._decode(decode, IMAGE_COLUMNS), self.plan, OWN_COLUMNS)
        failing = projected.where(F.col(FAILURE).isNotNull()).select(POSITION, FAILURE)
        return tuple((position, reason) for position, reason in failing.collect())

    def _shuffle(
        self, bucketed: DataFrame, bucket: str, ranges: Sequence[OffsetRange]
    ) -> DataFrame:
        """Shuffle by bucket into a few tasks; each task gets several buckets."""
        target: Column = F.col(bucket)
        return bucketed.repartitionById(self.count_tasks(ranges), target)

    def count_tasks(self, ranges: Sequence[OffsetRange]) -> int:
        """Return the number of fold tasks for these ranges."""
        return max(1, min(self.cores, -(-count_planned_records(ranges) // FOLD_TASK_ROWS)))


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the parcels of a view; Spark calls it in a worker."""
    with task_body():
        for batch in batches:
            for number in range(batch.num_rows):  # together they may be large
                one = batch.slice(number, 1)
                yield from unpack_parcels(pa.Table.from_batches([one])).to_batches()
