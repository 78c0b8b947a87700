"""Serving: the demo's service and its two jobs, through the service's client."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from jobs.demo.specs import SPECS
from jobs.demo.waiting import DemoFailed, Patience
from schemas.types.json_types import JsonObject

PORT, PORTS_TRIED = 8080, 100
CLEANUP_SECONDS_MAX = 90.0
FAILURES_MAX = 3  # of a job that the service starts again
LOG_LINES_SHOWN = 15

_library: Any = import_module("service.client")
_NAMES = [spec["name"] for spec in SPECS]
_PAUSE_SECONDS = 0.2
_PASSING = (429, 502, 503, 504)  # a busy service answers so

Answer = TypeVar("Answer")


def find_free_port(first: int = PORT) -> int:
    """Return the first free port from `first` on."""
    for port in range(first, min(first + PORTS_TRIED, 65_536)):
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                taken.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise DemoFailed(f"ports {first} to {first + PORTS_TRIED - 1} are all taken; try --port")


class Service:
    """A service process with the demo's jobs, from `start` to `stop`."""

    def __init__(self, process: subprocess.Popen[str], log: Path, address: str) -> None:
        self._process = process
        self._log = log
        self.address = address
        self.client: Any = _library.Client(address)

    @classmethod
    def start(cls, data: Path, brokers: str, port: int) -> Service:
        """Start the process; return when it serves."""
        path = data / "service.log"
        command = [sys.executable, "-m", "jobs.cli.main", "serve", "--data", str(data)]
        with path.open("wb") as log:
            process = subprocess.Popen(
                [*command, "--brokers", brokers, "--port", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # so that Ctrl-C ends the demo only, which stops the jobs
            )
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready "):
            raise DemoFailed(f"the service did not start\n{_read_end(path)}")
        return cls(process, path, line.split()[1])

    def start_jobs(self) -> None:
        for spec in SPECS:
            self._request(partial(self.client.put, spec["name"], spec))
            self._request(partial(self.client.start, spec["name"]))

    def check(self) -> None:
        """Raise DemoFailed if the service has ended, or a job has failed again and again."""
        for job in self.list_jobs():
            final = job.actual == "FAILED" and job.retry_at is None
            if final or job.failures >= FAILURES_MAX:
                lines = self._request(partial(self.client.logs, job.name, limit=LOG_LINES_SHOWN))
                text = "\n".join(["the end of its log:", *(line.message for line in lines)])
                raise DemoFailed(f"the job {job.name} failed: {job.reason}\n{text}")

    def list_jobs(self) -> list[Any]:
        """Return the documents of the demo's jobs; raise DemoFailed if one was deleted."""
        found = {job.name: job for job in self._request(lambda: list(self.client.jobs()))}
        for name in _NAMES:
            if name not in found:
                raise DemoFailed(f"the job {name} was deleted, so there is nothing to compare")
        return [found[name] for name in _NAMES]

    def resume_jobs(self) -> list[str]:
        """Let the jobs run that somebody has paused or stopped; return their names."""
        idle = [job for job in self.list_jobs() if job.desired != "RUNNING"]
        for job in idle:
            go = self.client.resume if job.desired == "PAUSED" else self.client.start
            with suppress(_library.Refused):  # in the middle of another change: the next call
                go(job.name)
        return [job.name for job in idle]

    def read_rows(self, job: str) -> list[JsonObject]:
        return self._request(lambda: list(self.client.results(job)))

    def stop_jobs(self, report: Callable[[str], None], seconds_max: float | None = None) -> None:
        """Stop the jobs; they publish what they have committed before they end."""
        for name in _NAMES:
            self._request(partial(self.client.stop, name))
        patience = Patience() if seconds_max is None else Patience(seconds_max)
        while running := [job for job in self.list_jobs() if job.actual != "STOPPED"]:
            for job in running:
                if job.actual == "FAILED":
                    raise DemoFailed(f"the job {job.name} failed while it stopped: {job.reason}")
            states = describe_states(running)
            report(states)
            patience.require(states, f"the jobs do not stop: {states}")
            time.sleep(_PAUSE_SECONDS)

    def stop(self) -> None:
        """Stop the jobs that still run, then the service."""
        if self._process.poll() is None:
            with suppress(Exception):  # the guard kills what is left
                self.stop_jobs(lambda _: None, CLEANUP_SECONDS_MAX)
            self._process.terminate()
            try:
                self._process.wait(CLEANUP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self.client.close()

    def _request(self, call: Callable[[], Answer]) -> Answer:
        """Call the service; try again while it is too busy to answer and still runs."""
        patience = Patience()
        while True:
            try:
                return call()
            except _library.Refused as refused:
                if refused.status not in _PASSING:
                    raise
                problem: Exception = refused
            except OSError as error:
                problem = error
            status = self._process.poll()
            if status is not None:
                raise DemoFailed(f"the service ended with status {status}\n{_read_end(self._log)}")
            patience.require(None, f"the service does not answer: {problem}")
            time.sleep(_PAUSE_SECONDS)


def _read_end(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join(["the end of its log:", *lines[-LOG_LINES_SHOWN:]])


def describe_states(jobs: list[Any]) -> str:
    """Return the state of each job, with the reason of a retry."""
    parts = []
    for job in jobs:
        epoch = f" at epoch {job.epoch}" if job.epoch else ""
        reason = f" ({job.reason})" if job.actual == "FAILED" and job.reason else ""
        parts.append(f"{job.name} {job.actual}{epoch}{reason}")
    return ", ".join(parts)
