"""The service as a process, and clients of it."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

import httpx
import psutil

from schemas.failures.catalogue import failure_kinds
from tests.support.command.warm_command import WarmCommand, warm_commands

CHECKOUT = Path(__file__).resolve().parents[3]
START_SECONDS_MAX = 90
ALIVE_SECONDS_MAX = 2.0  # for an answer about its health
# No broker listens there: a started job waits for its broker, and holds its lock.
NO_BROKER = "127.0.0.1:9"
SPEC = """\
source: {topic: t}
columns: {name: STRING, v: INT}
query: SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name
state: {buckets: 4}
"""


def eventually(look: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Call `look` until its result is true, and return it; fail with its last result.

    Pauses grow, because the awaited work needs the processor too.
    """
    deadline = time.monotonic() + seconds
    pause = 0.02
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds} s; the last was {found!r}"
        time.sleep(pause)
        pause = min(1.1 * pause, 0.25)


@dataclass(slots=True)
class Served:
    """A running service."""

    data: Path
    process: WarmCommand
    address: str
    token: str | None = None
    pids: list[int] = field(default_factory=list)
    postgres: str = ""  # the address for PostgreSQL's clients, with --pg-port

    @classmethod
    def start(
        cls,
        data: Path,
        *arguments: str,
        brokers: str = NO_BROKER,
        token: str | None = None,
        files_max: tuple[int, int] | None = None,
        errors: IO[bytes] | None = None,
    ) -> Served:
        """Start a service with a soft and a hard limit of open files; `errors` gets its log."""
        output, theirs = os.pipe()
        process = warm_commands.start(
            *("serve", "--data", str(data), "--port", "0", "--brokers", brokers, *arguments),
            stdout=theirs,
            stderr=2 if errors is None else errors.fileno(),
            files_max=files_max,
        )
        os.close(theirs)
        with open(output) as stdout:
            line = stdout.readline()
        assert line.startswith("ready "), line
        _, address, *others = line.split()
        return cls(data, process, address, token, postgres=others[0] if others else "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        """Stop the service, unless the test has ended it, and all jobs of its register."""
        code = self.stop() if self.process.poll() is None else 0
        end_jobs(self.data)
        assert failed is not None or code == 0, f"the service ended with {code}"

    def client(self, **headers: str) -> httpx.Client:
        if self.token is not None:
            headers.setdefault("Authorization", f"Bearer {self.token}")
        return httpx.Client(base_url=self.address, headers=headers, timeout=30, trust_env=False)

    def job(self, name: str) -> dict[str, Any]:
        with self.client() as client:
            document: dict[str, Any] = client.get(f"/v1/jobs/{name}").json()
            return document

    @property
    def nursery(self) -> psutil.Process:
        """The process that begins readers and attempts; the other child answers SQL."""
        children = psutil.Process(self.process.pid).children()
        (found,) = (each for each in children if "jobs.querying.workers" not in each.cmdline())
        return found

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(START_SECONDS_MAX)


def alive_while(served: Served, ask: Callable[[httpx.Client], httpx.Response]) -> httpx.Response:
    """Return the answer to a question; meanwhile another client reads the service's health."""
    with ThreadPoolExecutor(1) as asking, served.client() as client, served.client() as other:
        answer = asking.submit(ask, client)
        while not answer.done():
            began = time.monotonic()
            assert other.get("/healthz").status_code == 200
            assert time.monotonic() - began < ALIVE_SECONDS_MAX
            time.sleep(0.01)
        return answer.result()


def end_jobs(data: Path) -> None:
    """Kill all processes that the register has; each job is its own process group."""
    register = data / "service" / "register.sqlite"
    if not register.exists():
        return
    with sqlite3.connect(register) as connection:
        for (pid,) in connection.execute("SELECT pid FROM jobs WHERE pid IS NOT NULL"):
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert (response.status_code, document["code"]) == (status, code), document
    assert document["status"] == status
    assert document["type"] == f"urn:retally:problem:{code}"
    kind = failure_kinds()[code]
    assert (document["retryable"], document["advice"]) == (kind.retryable, kind.plain_advice)
    assert status in kind.status and document.get("errors") != []
    return document
