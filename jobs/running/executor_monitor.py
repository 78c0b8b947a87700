"""Report a job that its cluster gives no cores, and end it after a while.

no cores ──► 30 s: waiting.json, a line in the log ──► 120 s: NoExecutors, which is retryable
         └─► cores again: the file is deleted

It has a thread of its own: an epoch without executors never ends, and the driver waits for epochs.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from jobs.edge.spark.executors import NoExecutors, find_missing
from schemas.directory.documents import write_document
from schemas.directory.reports import Waiting
from schemas.limits import EXECUTORS_MISSING_REPORTED_SECONDS, EXECUTORS_MISSING_SECONDS_MAX
from schemas.types.moments import now_ms

log = logging.getLogger(__name__)

_CHECK_SECONDS = 2.0
_ADVICE = (
    "check that the master and the workers are alive, and that they have free cores and memory "
    "(JOB_CORES, JOB_MEMORY, JOBS_MAX)"
)


class ExecutorMonitor:
    """Watches the executors of one job.

    `on_missing` gets the NoExecutors that ends the job, in the thread.
    """

    def __init__(
        self,
        find_missing: Callable[[], str | None],
        waiting: Path,
        on_missing: Callable[[NoExecutors], None],
    ) -> None:
        self._find_missing = find_missing
        self._since: float | None = None  # something is missing
        self._waiting = waiting
        self._on_missing = on_missing
        self._reported = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="executors", daemon=True)

    def start(self) -> ExecutorMonitor:
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop the thread, and delete the report."""
        self._closed.set()
        self._thread.join()
        self._withdraw()

    def check(self, now: float) -> None:
        """Report missing cores; raise NoExecutors once they are missing for too long."""
        missing = self._find_missing()
        if missing is None:
            self._since = None
            if self._reported:
                log.info("the cluster runs the job's tasks again")
                self._withdraw()
            return
        self._since = now if self._since is None else self._since
        seconds = now - self._since
        if seconds >= EXECUTORS_MISSING_SECONDS_MAX:
            raise NoExecutors(f"{missing} for {seconds:.0f} s; {_ADVICE}")
        if seconds >= EXECUTORS_MISSING_REPORTED_SECONDS and not self._reported:
            self._report(missing, seconds)

    def _run(self) -> None:
        while not self._closed.wait(_CHECK_SECONDS):
            try:
                self.check(time.monotonic())
            except NoExecutors as failure:
                self._on_missing(failure)
                return
            except Exception as error:  # the session ends
                log.debug("cannot read the cluster's status: %s", error)

    def _report(self, missing: str, seconds: float) -> None:
        self._reported = True
        reason = f"{missing}; {_ADVICE}"
        log.warning("%s", reason)
        since = now_ms() - int(seconds * 1_000)
        write_document(self._waiting, Waiting(reason=reason, pid=os.getpid(), since=since))

    def _withdraw(self) -> None:
        self._reported = False
        self._waiting.unlink(missing_ok=True)


@contextmanager
def watch_executors(
    spark: SparkSession, master: str, waiting: Path, failures: list[BaseException]
) -> Iterator[None]:
    """Watch what a cluster gives the job; without cores, cancel the epoch, which has no end."""
    if master.startswith("local"):
        yield
        return

    def fail(failure: NoExecutors) -> None:
        failures.append(failure)
        spark.sparkContext.cancelAllJobs()

    monitor = ExecutorMonitor(lambda: find_missing(spark), waiting, fail).start()
    try:
        yield
    except Exception as failure:
        first = failures[0] if failures else failure
        if isinstance(first, NoExecutors) and first is not failure:
            raise first from failure  # which is only how the canceled epoch ended
        raise
    finally:
        monitor.close()
