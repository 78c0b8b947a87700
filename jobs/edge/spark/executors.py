"""Watch whether a cluster runs a job's tasks.

executors, running tasks (Spark's status) ──► observe(now) ──► how long no task could run

Spark does not report lost executors to a job: it waits for new ones without a limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

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
