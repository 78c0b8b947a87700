"""Single faults: one part of a running job is killed, paused or loses its files.

fault ──► the job continues, or its service restarts it ──► it commits two more epochs
"""

from __future__ import annotations

import os
import shutil
import signal
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.process_tree import command_line, descendants
from jobs.edge.process.broker import Broker
from retally import Client
from service.supervision import job_process
from tests.support.faults.load import BACK_SECONDS_MAX
from tests.support.faults.tally import FaultTally
from tests.support.jobs.running_job import RunningJob
from tests.support.service.served import eventually

# Parts of a job, each with a text of its command line.
DRIVER, WORKER, PUBLISHER, JVM = (
    "jobs.cli.main",
    "python_daemon",
    "jobs.edge.publisher.process",
    "SparkSubmit",
)
BROKER = "broker"
NAMES = {
    DRIVER: "the driver",
    WORKER: "a worker",
    PUBLISHER: "the publisher",
    JVM: "the JVM",
    BROKER: "the broker",
}


@dataclass(frozen=True, slots=True)
class Running:
    """The processes and files that faults affect."""

    driver: int
    job: RunningJob
    broker: Broker

    def pid(self, part: str) -> int:
        """Return the newest process of a part."""
        if part == BROKER:
            return self.broker.java_pid
        if part == DRIVER:
            return self.driver
        newest: int = eventually(lambda: max(self._pids(part), default=None), BACK_SECONDS_MAX)
        return newest

    def _pids(self, part: str) -> list[int]:
        return [pid for pid in descendants(self.driver) if part in command_line(pid)]


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    does: Callable[[Running], None]


def kill(part: str) -> Fault:
    return Fault(
        f"{NAMES[part]} is killed", lambda running: os.kill(running.pid(part), signal.SIGKILL)
    )


def pause(part: str, seconds: float) -> Fault:
    def paused(running: Running) -> None:
        pid = running.pid(part)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    return Fault(f"{NAMES[part]} is paused for {seconds:.0f} s", paused)


def lose_hot_state() -> Fault:
    def lost(running: Running) -> None:
        shutil.rmtree(running.job.data / "cache", ignore_errors=True)

    return Fault("the hot state is deleted", lost)


def lose_shared_memory() -> Fault:
    """Return a fault that deletes the query's temporary checkpoint, which is in memory."""

    def lost(running: Running) -> None:
        mine = f"retally-{zlib.crc32(str(running.job.table).encode()):08x}-*"
        found = list(Path("/dev/shm").glob(mine))
        assert found, "the checkpoint is elsewhere"
        for directory in found:
            shutil.rmtree(directory, ignore_errors=True)

    return Fault("the files in /dev/shm are deleted", lost)


def strike(
    client: Client, job: RunningJob, fault: Fault, broker: Broker, tally: FaultTally
) -> None:
    """Cause one fault, and measure the time until the job commits again."""
    tally.plan(fault.name)
    driver = eventually(lambda: driver_of(job), BACK_SECONDS_MAX)
    fault.does(Running(driver, job, broker))
    struck, epoch = time.monotonic(), client.job("items").epoch or 0
    tally.fire(fault.name)
    eventually(lambda: (client.job("items").epoch or 0) > epoch + 1, BACK_SECONDS_MAX)
    tally.recoveries.append(time.monotonic() - struck)


def driver_of(job: RunningJob) -> int | None:
    return job_process.find_writer(job.table.parent / "lock")
