"""The stack of docs/deploy.md on a real engine, in a copy of the checkout.

checkout ──► upstream (a repository) ──► clone ──► docker compose ──► six containers
               a newer version goes here ──┘ git pull

Project, image and ports have names of the tests, so that a deployment beside them is left alone.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.compose.engine import Engine
from tests.compose.page import Shell, document
from tests.compose.stand_ins import Images
from tests.deploy.deployment import CHECKOUT

PROJECT = "retally-test"
JOB = "/v1/jobs/items"
# On a busy machine everything takes long: only a stack that shows no progress for so long fails.
STALL_SECONDS_MAX = 300.0
SIX = ("kafka-1", "spark-master-1", "spark-worker-1", "spark-worker-2", "service-1", "demo-1")


@dataclass(slots=True)
class Stack:
    engine: Engine
    clone: Path
    shell: Shell
    brokers: str

    @property
    def client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.shell.variable('TOKEN')}"}
        return httpx.Client(
            base_url=f"http://{self.shell.service}", headers=headers, timeout=30, trust_env=False
        )

    def compose(self, *words: str, check: bool = True) -> str:
        return self.engine.run("docker", "compose", *words, cwd=self.clone, check=check)

    # --- the job ----------------------------------------------------------------------------------

    def job(self) -> dict[str, Any]:
        with self.client as client, suppress(httpx.HTTPError, ValueError):
            answer = client.get(JOB)
            if answer.status_code == 200:
                found: dict[str, Any] = answer.json()
                return found
        return {}

    @property
    def failure(self) -> str | None:
        """The code of the job's newest failure."""
        code: str | None = (self.job().get("failure") or {}).get("code")
        return code

    def rows(self) -> list[dict[str, Any]]:
        with self.client as client, suppress(httpx.HTTPError, ValueError):
            answer = client.get(f"{JOB}/results", params={"limit": 1_000})
            if answer.status_code == 200:
                found: list[dict[str, Any]] = answer.json()["rows"]
                return found
        return []

    def until(self, true: Callable[[], Any], what: str) -> None:
        """Wait as long as the stack shows progress."""
        seen: object = None
        moved = time.monotonic()
        while not true():
            now = self._progress()
            if now != seen:
                seen, moved = now, time.monotonic()
            assert time.monotonic() - moved < STALL_SECONDS_MAX, (
                f"{what}: nothing moved for {STALL_SECONDS_MAX:.0f} s\n{now}\n"
                + self.compose("logs", "--tail", "40", check=False)[-6_000:]
            )
            time.sleep(1)

    def _progress(self) -> object:
        job = self.job()
        told = {name: job.get(name) for name in ("actual", "epoch", "reason", "lag", "failure")}
        states = [(each, self.state(each).get("Health", {}).get("Status")) for each in self.names()]
        return json.dumps([told, states], default=str)

    def until_failed(self, failures: int, what: str) -> dict[str, Any]:
        """Wait for a failure after so many; return the job as it is then."""
        job: dict[str, Any] = {}

        def failed() -> bool:
            """A job that starts again keeps the number, and shows no failure."""
            job.update(self.job())
            return job.get("failures", 0) > failures and job.get("failure") is not None

        self.until(failed, f"the failure: {what}")
        return job

    def until_an_epoch_after(self, epoch: int) -> float:
        """Wait for a newer epoch; return the seconds."""
        began = time.monotonic()
        self.until(lambda: (self.job().get("epoch") or 0) > epoch, f"an epoch after {epoch}")
        return time.monotonic() - began

    @property
    def epoch(self) -> int:
        return int(self.job().get("epoch") or 0)

    # --- the containers ---------------------------------------------------------------------------

    def names(self) -> list[str]:
        told = self.compose("--profile", "demo", "ps", "--all", "--format", "{{.Name}}")
        return sorted(name.removeprefix(f"{PROJECT}-") for name in told.split())

    def inspect(self, name: str) -> dict[str, Any]:
        with suppress(ValueError, IndexError):
            told = self.engine.docker("inspect", f"{PROJECT}-{name}", check=False)
            found: dict[str, Any] = json.loads(told)[0]
            return found
        return {}

    def state(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.inspect(name).get("State", {})
        return found

    def healthy(self, name: str) -> bool:
        return str(self.state(name).get("Health", {}).get("Status")) == "healthy"

    def until_healthy(self) -> None:
        self.until(lambda: all(map(self.healthy, self.names())), "health of all containers")

    def kill(self, name: str) -> None:
        """`kill -9` of its first process, as a crash; `docker kill` would count as wished."""
        before = self.inspect(name)
        pid = str(before["State"]["Pid"])
        group = Path(f"/proc/{pid}/cgroup")
        if group.exists() and before["Id"] in group.read_text():  # the engine of this machine
            os.kill(int(pid), signal.SIGKILL)
        else:
            words = ("--rm", "--privileged", "--pid", "host", "--user", "0", "--network", "none")
            kill = ("--entrypoint", "bash", before["Image"], "-c", f"kill -9 {pid}")
            self.engine.docker("run", *words, *kill)
        self.until(
            lambda: self.inspect(name)["RestartCount"] > before["RestartCount"],
            f"the restart of {name}",
        )


def list_volumes(engine: Engine) -> set[str]:
    return set(engine.docker("volume", "ls", "--quiet").split())


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def publish_copy(upstream: Path, images: Images) -> None:
    """Make the repository that the page's reader clones: this checkout, with changes not committed
    yet, and with the bases that this engine has."""
    _git(CHECKOUT, "clone", "--quiet", ".", str(upstream))
    changes = subprocess.run(
        ["git", "diff", "--binary", "HEAD"], cwd=CHECKOUT, capture_output=True, check=True
    ).stdout
    if changes.strip():
        subprocess.run(["git", "apply", "--index"], cwd=upstream, input=changes, check=True)
    _replace(upstream / "Dockerfile", r"^ARG BASE=.*$", f"ARG BASE={images.base}")
    _replace(upstream / ".env", r"^KAFKA_IMAGE=.*$", f"KAFKA_IMAGE={images.kafka}")
    _replace(upstream / ".env", r"^RETALLY_IMAGE=.*$", f"RETALLY_IMAGE={PROJECT}")
    commit(upstream, "as tested")


def commit(repository: Path, subject: str) -> None:
    _git(
        repository,
        "-c",
        "user.name=test",
        "-c",
        "user.email=test@localhost",
        "commit",
        "--quiet",
        "--all",
        "--message",
        subject,
    )


def clone_of(upstream: Path, target: Path) -> Path:
    """Clone it, and set what the reader sets: free ports."""
    _git(upstream, "clone", "--quiet", ".", str(target))
    for name in ("SERVICE_PORT", "POSTGRES_PORT", "SPARK_UI_PORT", "KAFKA_PORT"):
        change_setting(target, name, str(free_port()))
    return target


def change_setting(clone: Path, name: str, value: str) -> None:
    _replace(clone / ".env", rf"^{name}=.*$", f"{name}={value}")


def setting(clone: Path, name: str) -> str:
    found = re.search(rf"^{name}=(.*)$", (clone / ".env").read_text(), re.MULTILINE)
    assert found is not None, name
    return found[1]


def _replace(path: Path, pattern: str, text: str) -> None:
    before = path.read_text()
    after, count = re.subn(pattern, text, before, flags=re.MULTILINE)
    assert count == 1, f"{path.name}: {pattern}"
    path.write_text(after)


def _git(cwd: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=cwd, check=True, capture_output=True)


@contextmanager
def prepared(engine: Engine, upstream: Path, clone: Path) -> Iterator[Stack]:
    """A clone in which nothing was started yet; afterwards nothing of it is left."""
    clone_of(upstream, clone)
    environment = {**engine.environment, "COMPOSE_PROJECT_NAME": PROJECT}
    engine = Engine(engine.version, environment)
    (clone / "items.yaml").write_text(document("First job", "yaml"))
    service = f"127.0.0.1:{setting(clone, 'SERVICE_PORT')}"
    stack = Stack(
        engine,
        clone,
        Shell(clone, environment, service),
        f"localhost:{setting(clone, 'KAFKA_PORT')}",
    )
    before = list_volumes(engine)
    try:
        yield stack
    finally:
        stack.compose("--profile", "demo", "down", "--volumes", "--remove-orphans", check=False)
        for name in list_volumes(engine) - before:  # `down` of the page keeps those without a name
            engine.docker("volume", "rm", name, check=False)
