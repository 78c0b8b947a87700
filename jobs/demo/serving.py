"""Serving: the demo's service and its two jobs, through the Python client."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import retally
from jobs.demo.specs import ITEMS, SPECS
from jobs.edge.process.broker import is_free

PORT, PORTS_TRIED = 8080, 100
STOP_SECONDS_MAX = 90.0
FAILURES_MAX = 3  # of a job that the service starts again
STALL_SECONDS_MAX = 600.0  # a start of Spark took three minutes on a machine with load 50

_PAUSE_SECONDS = 0.2
_COUNTED = re.compile(rf'retally_job_counted_total{{job="{ITEMS["name"]}",what="(\w+)"}} (\S+)')


class DemoFailed(Exception):
    """The demo cannot continue; the message says why."""


@dataclass(slots=True)
class Patience:
    """Waits as long as a sign of progress changes: a busy machine is slow, and not broken."""

    seconds_max: float = STALL_SECONDS_MAX
    _sign: object = None
    _since: float = field(default_factory=time.monotonic)

    def require(self, sign: object, what: str) -> None:
        """Raise DemoFailed if the sign has not changed for too long."""
        if sign != self._sign:
            self._sign, self._since = sign, time.monotonic()
        if time.monotonic() - self._since > self.seconds_max:
            raise DemoFailed(f"{what}, and nothing has moved for {self.seconds_max:.0f} s")


def find_free_port(first: int = PORT) -> int:
    """Return the first free port from `first` on; `first` if none is."""
    ports = range(first, min(first + PORTS_TRIED, 65_536))
    return next((each for each in ports if is_free("127.0.0.1", each)), first)


class Service:
    """A service process with the demo's jobs, from `start` to `stop`."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self._process = process
        self.address = address
        self.client = retally.connect(address)

    @classmethod
    def start(cls, data: Path, brokers: str, port: int) -> Service:
        """Start the process; return when it serves."""
        log = data / "service.log"
        command = [sys.executable, "-m", "jobs.cli.main", "serve", "--data", str(data)]
        process = subprocess.Popen(
            [*command, "--brokers", brokers, "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log.open("wb"),
            text=True,
            start_new_session=True,  # so that Ctrl-C ends the demo only, which stops the jobs
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready "):
            raise DemoFailed(f"the service did not start; {log} says why")
        return cls(process, line.split()[1])

    def start_jobs(self) -> None:
        for spec in SPECS:
            self.request(self.client.put, spec)
            self.request(self.client.start, spec["name"])

    def list_jobs(self) -> list[retally.Job]:
        """Return the documents of the demo's jobs.

        Raise DemoFailed if a job was deleted, or has failed again and again.
        """
        found = {job.name: job for job in self.request(self.client.jobs)}
        if not {spec["name"] for spec in SPECS} <= found.keys():
            raise DemoFailed("a job was deleted, so there is nothing to compare")
        jobs: list[retally.Job] = [found[spec["name"]] for spec in SPECS]
        for job in jobs:
            if job.failures >= FAILURES_MAX or (job.actual == "FAILED" and job.retry_at is None):
                raise DemoFailed(f"the job {job.name} failed: {job.reason}")
        return jobs

    def resume_jobs(self) -> list[str]:
        """Let the jobs run that somebody has paused or stopped; return their names."""
        idle = [job for job in self.list_jobs() if job.desired != "RUNNING"]
        for job in idle:
            go = self.client.resume if job.desired == "PAUSED" else self.client.start
            with suppress(retally.Refused):  # in the middle of another change: the next call
                go(job.name)
        return [job.name for job in idle]

    def stop_jobs(self) -> None:
        """Ask the jobs to stop; they publish what they have committed before they end."""
        for spec in SPECS:
            self.request(self.client.stop, spec["name"])

    def read_metrics(self) -> dict[str, float]:
        """Return the first job's counters since the service started, by name."""
        text = self.request(self.client.metrics)
        return {what: float(value) for what, value in _COUNTED.findall(text)}

    def stop(self) -> None:
        """Stop the service; the guard kills a job that still runs."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS_MAX)
        self.client.close()

    def request(self, call: Callable[..., Any], *arguments: object) -> Any:
        """Call the service; try again while it is too busy to answer and still runs."""
        patience = Patience()
        while True:
            try:
                return call(*arguments)
            except retally.RetallyError as error:
                busy = not isinstance(error, retally.Refused) or error.retryable
                if not busy or self._process.poll() is not None:
                    raise
                patience.require(None, f"the service does not answer: {error}")
            time.sleep(_PAUSE_SECONDS)


def describe_states(jobs: Iterable[retally.Job]) -> str:
    """Return the state of each job, with the reason of a retry."""
    return ", ".join(
        f"{job.name} {job.actual} at epoch {job.epoch or 0}"
        + (f" ({job.reason})" if job.actual == "FAILED" else "")
        for job in jobs
    )
