"""The Spark session that the tests of a worker share, also after one of them has ended it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class WorkerSession:
    """Gives what the worker's session has, which is started when it is first asked for."""

    def __init__(self) -> None:
        self._started: SparkSession | None = None

    @property
    def spark(self) -> SparkSession:
        from jobs.edge.spark.session import session

        if self._started is None:
            self._started = session("tests")
        return self._started

    def restart_if_ended(self) -> bool:
        """Say whether somebody else has stopped it; if so, there is a new one."""
        if self._started is None:
            return False
        context = self._started.sparkContext
        ended = context._jsc is None or bool(context._jsc.sc().isStopped())
        if ended:
            self.stop()
            assert self.spark is not None
        return ended

    def stop(self) -> None:
        if self._started is not None:
            self._started.stop()
            self._started = None

    def __getattr__(self, name: str) -> Any:
        if self._started is None and name.startswith("_"):
            raise AttributeError(name)  # pytest looks for such names in all that a module holds
        return getattr(self.spark, name)


worker_session = WorkerSession()
