"""Serving: the demo's service and its two jobs, through the service's client."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from jobs.demo.specs import SPECS

PORT, PORTS_TRIED = 8080, 100
READY_SECONDS_MAX = 60
STOP_SECONDS_MAX = 90
LOG_LINES_SHOWN = 15


class ServiceFailed(Exception):
    """The service or one of its jobs failed; the message has the end of its log."""


def find_free_port(first: int = PORT) -> int:
    """Return the first free port from `first` on."""
    for port in range(first, first + PORTS_TRIED):
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                taken.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServiceFailed(f"ports {first} to {first + PORTS_TRIED - 1} are all taken")


class Service:
    """A service process with the demo's jobs."""

    def __init__(self, data: Path, brokers: str) -> None:
        self._log = data / "service.log"
        port = find_free_port()
        command = [sys.executable, "-m", "jobs.cli.main", "serve", "--data", str(data)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--brokers", brokers, "--port", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # so that Ctrl-C ends the demo only, which stops the jobs
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("ready "):
            raise ServiceFailed(f"the service did not start\n{self._log_end}")
        self.address = line.split()[1]
        self.client: Any = import_module("service.client").Client(self.address)

    def start_jobs(self) -> None:
        for spec in SPECS:
            self.client.put(spec["name"], spec)
            self.client.start(spec["name"])

    def check(self) -> None:
        """Raise ServiceFailed if the service has ended or a job has failed."""
        if self._process.poll() is not None:
            raise ServiceFailed(
                f"the service ended with status {self._process.returncode}\n{self._log_end}"
            )
        for job in self.client.jobs():
            if job.failures:
                lines = [line.message for line in self.client.logs(job.name, limit=LOG_LINES_SHOWN)]
                text = "\n".join(["the end of its log:", *lines])
                raise ServiceFailed(f"the job {job.name} failed: {job.reason}\n{text}")

    def read_epochs(self) -> dict[str, int]:
        """Return the newest epoch of each job; 0 if it has none."""
        return {job.name: job.epoch or 0 for job in self.client.jobs()}

    def read_rows(self, job: str) -> list[dict[str, Any]]:
        return list(self.client.results(job))

    def stop_jobs(self) -> None:
        """Stop the jobs; they publish what they have committed before they end."""
        names = [spec["name"] for spec in SPECS]
        for name in names:
            self.client.stop(name)
        for name in names:
            job = self.client.until(name, "STOPPED", "FAILED", seconds=STOP_SECONDS_MAX)
            if job.actual == "FAILED":
                raise ServiceFailed(f"the job {name} failed: {job.reason}")

    def stop(self) -> None:
        """Stop the jobs that still run, then the service."""
        if self._process.poll() is None:
            with suppress(Exception):  # the guard kills what is left
                self.stop_jobs()
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self.client.close()

    @property
    def _log_end(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(["the end of its log:", *lines[-LOG_LINES_SHOWN:]])
