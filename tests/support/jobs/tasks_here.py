"""Run an epoch's tasks in the test's process, so that it costs milliseconds and no JVM.

    Pipeline ─► sparkContext.parallelize(ranges).mapPartitions(EpochTask) ─► a function call
             ─► range(buckets).mapInArrow(TimeTask)                       ─► a function call
             ─► whatever else                                             ─► the worker's session

These two are all that small epochs ask of Spark, unless a query has expressions for it. That Spark
gives them the same input is the matter of the tests of `retally run`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from jobs.edge.spark.task_errors import TaskError
from jobs.edge.tasks.fold import TimeTask
from schemas.types.arrow_values import to_list
from tests.support.jobs.worker_session import worker_session

Rows = Iterable[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Planned:
    """What a stage gives once its rows are collected."""

    run: Callable[[], Rows]

    def collect(self) -> list[tuple[str, bytes]]:
        try:
            return list(self.run())
        except TaskError as failure:
            assert failure.__cause__ is not None
            raise failure.__cause__ from None


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of ranges or buckets, in one partition."""

    numbers: range
    in_spark: Callable[[], Any]

    def mapPartitions(self, task: Callable[[Iterable[int]], Rows]) -> Planned:
        return Planned(lambda: task(self.numbers))

    def mapInArrow(self, task: Any, schema: Any) -> Any:
        if not isinstance(task, TimeTask):
            return self.in_spark().mapInArrow(task, schema)
        return Planned(lambda: self._fold(task))

    def _fold(self, task: TimeTask) -> Iterator[tuple[str, bytes]]:
        given = pa.RecordBatch.from_pydict({"id": list(self.numbers)})
        for batch in task(iter([given])):
            yield from zip(*map(to_list, batch.columns), strict=True)


class TasksHere:
    """A Spark session, as far as the pipeline of a plain query needs one."""

    @property
    def sparkContext(self) -> TasksHere:
        return self

    def parallelize(self, numbers: range, _partitions: int) -> Numbers:
        return Numbers(numbers, lambda: worker_session.spark)

    def range(self, *planned: int) -> Numbers:
        return Numbers(range(*planned[:3]), lambda: worker_session.spark.range(*planned))

    def __getattr__(self, name: str) -> Any:
        return getattr(worker_session.spark, name)
