"""Run tasks on the executors where their buckets are at home.

    executors of the tasks ─► an RDD with a partition on each ─► zip ─► the task runs there
    records of a shuffle ────────────────────────────────────────┘

Spark runs a task of zipped RDDs at the place that one of them names. It waits for a busy executor
for HOME_WAIT_MS_MAX (`spark.locality.wait`), and not for a lost one. Without homes, as with one
executor, these are the plain RDDs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.serializers import NoOpSerializer

from jobs.core.homes import Placement

_EXECUTOR = "executor_"  # how Spark names a place that is an executor: executor_HOST_ID


def pack_target(target: int) -> bytes:
    """Return the number of a task as Spark reads it before a record."""
    return target.to_bytes(8, "big")


@dataclass(slots=True)
class PlacedTasks:
    """Makes the RDDs of a job; it keeps the places as long as homes are the same."""

    _executors: tuple[str, ...] = ()
    _places: Any = None  # a Java RDD of one empty value on each of these

    def run_numbers(
        self,
        context: SparkContext,
        numbers: range,
        task: Callable[[Iterable[int]], Iterable[bytes]],
        placement: Placement,
    ) -> RDD[bytes]:
        """Return what tasks give that have no input but numbers: of buckets, say."""
        if not placement.executors:
            return context.parallelize(numbers, placement.tasks).mapPartitions(task)
        places: RDD[bytes] = RDD(self._locate(context, placement), context, NoOpSerializer())
        return places.mapPartitionsWithIndex(_Divided(task, placement.divide(numbers)))

    def shuffle(self, sent: RDD[Any], placement: Placement, records: int) -> RDD[bytes]:
        """Return the records that each task gets: the values that `sent` has after their targets.

        With homes each task gets `records`. It is what pyspark's partitionBy does, but the values
        are bytes, which nobody pickles, and are sent as they come. `sent` must not preserve the
        partitions of a shuffle before: Spark would take it for divided as wanted.
        """
        context = sent.ctx
        jvm: Any = context._jvm
        sent._bypass_serializer = True  # type: ignore[attr-defined]
        pairs = jvm.PairwiseRDD(sent._jrdd.rdd()).asJavaPairRDD()
        partitioned = pairs.partitionBy(jvm.PythonPartitioner(placement.tasks, 0))
        arrived = jvm.PythonRDD.valueOfPair(partitioned)
        if placement.executors:
            counted = context._jsc.sc().range(0, records, 1, 1).toJavaRDD()
            places = self._locate(context, placement).cartesian(counted)
            arrived = jvm.PythonRDD.valueOfPair(places.zip(arrived))
        return RDD(arrived, context, NoOpSerializer())

    def _locate(self, context: SparkContext, placement: Placement) -> Any:
        """Return the Java RDD of the places, which takes several calls of the JVM for each."""
        if self._executors != placement.executors:
            jvm: Any = context._jvm
            located = jvm.java.util.ArrayList()
            for name in placement.executors:
                place = jvm.java.util.ArrayList()
                place.add(f"{_EXECUTOR}{name}")
                located.add(jvm.scala.Tuple2(b"", jvm.PythonUtils.toSeq(place)))
            tag = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$").Any()
            values = context._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(located), tag)
            self._executors, self._places = placement.executors, values.toJavaRDD()
        return self._places


@dataclass(frozen=True, slots=True)
class _Divided:
    """A task whose numbers depend on its own."""

    task: Callable[[Iterable[int]], Iterable[bytes]]
    numbers: Sequence[Sequence[int]]

    def __call__(self, index: int, given: Iterable[bytes]) -> Iterable[bytes]:
        for _ in given:  # pyspark reuses a worker that has read all of its input
            pass
        return self.task(self.numbers[index])
