"""The executors of a cluster: which there are, and whether they run a job's tasks.

Spark does not report lost executors to a job: it waits for new ones without a limit.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from schemas.failures.catalogue import CodedError
from schemas.limits import EXECUTORS_READ_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PORT = re.compile(r":\d+$")


class NoExecutors(CodedError, code="no-executors"):
    """The cluster gave the job no core for too long; the message says what to check."""


def find_missing(spark: SparkSession) -> str | None:
    """Return what the job waits for, by the driver's own memory; None if its tasks run."""
    context = spark.sparkContext._jsc.sc()
    executors = context.getExecutorMemoryStatus().size() - 1  # one is the driver
    if executors == 0:
        return "the cluster gives the job no executor"
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    if stages and all(stage is not None and stage.numActiveTasks == 0 for stage in stages):
        return f"the job's {executors} executors run none of its tasks"
    return None


def name_executor(address: str, number: str) -> str:
    """Return HOST_ID. For some moments after it is added, an executor's address has no port."""
    return f"{_PORT.sub('', address)}_{number}"


@dataclass(slots=True)
class ExecutorList:
    """The executors of a job, by the names that tasks report (jobs.edge.tasks.body)."""

    spark: SparkSession
    _found: dict[str, int] = field(default_factory=dict)
    _known: dict[str, tuple[str, int]] = field(default_factory=dict)  # by Spark's id
    _read_at: float = -EXECUTORS_READ_SECONDS

    def read(self) -> dict[str, int]:
        """Return the cores of each executor, without executors that are being decommissioned."""
        now = time.monotonic()
        if now - self._read_at >= EXECUTORS_READ_SECONDS:
            self._read_at = now
            context = self.spark.sparkContext._jsc.sc()
            backend = context.schedulerBackend()
            ids = backend.getExecutorIds().mkString(",").split(",")
            active = (each for each in ids if each and backend.isExecutorActive(each))
            described = (self._describe(context, each) for each in active)
            self._found = dict(each for each in described if each is not None)
        return self._found

    def _describe(self, context: Any, number: str) -> tuple[str, int] | None:
        """Return an executor's name and cores; None as long as Spark's status does not have it."""
        if number not in self._known:
            try:
                summary = context.statusStore().executorSummary(number)
            except Py4JJavaError:
                return None
            self._known[number] = name_executor(summary.hostPort(), number), summary.totalCores()
        return self._known[number]
