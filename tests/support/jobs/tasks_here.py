"""Run an epoch's tasks in the test's process, so that it costs milliseconds and no JVM.

    Pipeline ─► sparkContext.parallelize(ranges).mapPartitions(EpochTask) ─► a function call
             ─► sparkContext.parallelize(buckets).mapPartitions(TimeTask) ─► a function call
             ─► sparkContext.parallelize(ranges).mapPartitions(Outbox)    ─► the worker's session

The first two are all that small epochs ask of Spark. That Spark gives them the same input is the
matter of the tests of `retally run`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from jobs.edge.spark.task_errors import TaskError
from jobs.edge.tasks.outbox import Outbox
from tests.support.jobs.worker_session import worker_session

Rows = Iterable[bytes]


@dataclass(frozen=True, slots=True)
class Planned:
    """What a stage gives once its rows are collected."""

    run: Callable[[], Rows]

    def collect(self) -> list[bytes]:
        try:
            return list(self.run())
        except TaskError as failure:
            assert failure.__cause__ is not None
            raise failure.__cause__ from None


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of ranges or buckets, in one partition."""

    numbers: range
    partitions: int

    def mapPartitions(self, task: Any) -> Any:
        if isinstance(task, Outbox):  # before a shuffle
            numbers = worker_session.sparkContext.parallelize(self.numbers, self.partitions)
            return numbers.mapPartitions(task)
        return Planned(lambda: task(self.numbers))


class TasksHere:
    """A Spark session, as far as the pipeline of a plain query needs one."""

    @property
    def sparkContext(self) -> TasksHere:
        return self

    def parallelize(self, numbers: range, partitions: int) -> Numbers:
        return Numbers(numbers, partitions)

    def __getattr__(self, name: str) -> Any:
        return getattr(worker_session.spark, name)
