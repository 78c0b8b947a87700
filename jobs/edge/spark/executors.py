"""The executors of a cluster: which there are, and whether they run a job's tasks.

executors, running tasks (Spark's status) ──► observe(now) ──► how long no task could run

Spark does not report lost executors to a job: it waits for new ones without a limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from schemas.limits import EXECUTORS_READ_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class NoExecutors(Exception):
    """The cluster gave the job no core for too long; the message says what to check."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    executors: int
    waiting_stages: int  # stages with work, none of which runs

    @property
    def missing(self) -> str | None:
        """What the job waits for; None if its tasks run, or none has to."""
        if self.executors == 0:
            return "the cluster gives the job no executor"
        if self.waiting_stages:
            return f"the job's {self.executors} executors run none of its tasks"
        return None


def read_cluster_status(spark: SparkSession) -> ClusterStatus:
    """Return the job's executors and waiting stages, from the driver's own memory."""
    context = spark.sparkContext._jsc.sc()
    executors = context.getExecutorMemoryStatus().size() - 1  # one is the driver
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    waiting = [stage for stage in stages if stage is not None and stage.numActiveTasks == 0]
    return ClusterStatus(executors, len(waiting) if len(waiting) == len(stages) else 0)


@dataclass(slots=True)
class ExecutorWatch:
    """How long the cluster has given the job nothing to run tasks on."""

    read_status: Callable[[], ClusterStatus]
    missing: str | None = None
    _since: float = field(default=0.0)

    def observe(self, now: float) -> float:
        """Read the status at `now`, in seconds; return how long something is missing."""
        missing = self.read_status().missing
        if missing is None or self.missing is None:
            self._since = now
        self.missing = missing
        return now - self._since


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
            host = summary.hostPort().rpartition(":")[0]
            self._known[number] = f"{host}_{number}", summary.totalCores()
        return self._known[number]
