"""Containers without an engine: the compose file's commands and environment, as processes.

    compose + Dockerfile ──► command, environment ──► host names ──► addresses of the loopback net
                                                      paths      ──► directories of the test

Each container is a host with an address of its own (127.X.Y.n), so ports stay as they are; with a
cache and a /tmp of its own; and with no variable that the compose file or the image does not set.
Killing one kills all that it has started, as an engine does. RETALLY_TEST_IMAGE names a directory
that has what the image has at /opt/retally (`setup/setup.sh --runtime`); else it is the checkout.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any

import psutil

from jobs.edge.machine.java import java
from tests.deploy.deployment import CHECKOUT, composed, image_environment
from tests.support.network.hosts import Network

HEALTHY_SECONDS_MAX = 120.0
IMAGE = Path(os.environ.get("RETALLY_TEST_IMAGE", CHECKOUT))
_INHERITED = ("LANG",)
SPARK_SECRET = token_hex(32)


@dataclass(slots=True)
class Container:
    """One container of a service, as a process."""

    name: str
    address: str
    log: Path
    service: dict[str, Any]
    replaced: dict[str, str]
    further: dict[str, str] = field(default_factory=dict)  # more of the environment
    within: list[str] = field(default_factory=list)  # the words that run a command on its host
    process: subprocess.Popen[bytes] | None = None

    def place(self, text: str) -> str:
        """A word of the compose file or the image, with this machine's places in it."""
        known = sorted(self.replaced, key=len, reverse=True)
        pattern = "|".join(rf"(?<![\w.-]){re.escape(each)}(?![\w.-])" for each in known)
        return re.sub(pattern, lambda found: self.replaced[found[0]], text)

    @property
    def environment(self) -> dict[str, str]:
        said = {**image_environment(), **self.service.get("environment", {})}
        placed = {name: self.place(value) for name, value in said.items()}
        if IMAGE == CHECKOUT:  # which has a Java of its own only where the machine has none
            placed["JAVA_HOME"] = str(java().parents[1])
        # A container finds its own address by itself; these all share one network card.
        placed["SPARK_LOCAL_IP"] = self.address
        placed |= self.further
        return placed | {name: os.environ[name] for name in _INHERITED if name in os.environ}

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.within, *(self.place(word) for word in self.service["command"])],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.log.parent,
            )

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """`docker compose run` or `exec`."""
        return subprocess.run(
            [*self.within, *(self.place(word) for word in command)],
            env=self.environment,
            capture_output=True,
            text=True,
            cwd=self.log.parent,
        )

    @property
    def healthy(self) -> bool:
        how, *command = self.service["healthcheck"]["test"]
        assert how == "CMD"
        return self.run(*command).returncode == 0

    def until_healthy(self) -> None:
        deadline = time.monotonic() + HEALTHY_SECONDS_MAX
        while not self.healthy:
            assert self.process is not None
            assert self.process.poll() is None, f"{self.name} ended\n{self.last_words}"
            assert time.monotonic() < deadline, f"{self.name} is not healthy\n{self.last_words}"
            time.sleep(0.5)

    def kill(self) -> None:
        """Everything in it, at once."""
        if self.process is None:
            return
        with suppress(psutil.NoSuchProcess):
            first = psutil.Process(self.process.pid)
            first.suspend()  # a worker may be about to start an executor in place of another
            for each in (*first.children(recursive=True), first):
                with suppress(psutil.NoSuchProcess):
                    each.kill()
        self.process.wait()
        self.process = None

    @property
    def last_words(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])


@dataclass(slots=True)
class Stack:
    """What `docker compose up` would have started; the broker is the embedded one."""

    root: Path
    brokers: str
    network: Network | None = None  # whose hosts the containers are, instead of addresses of 127/8
    further: dict[str, str] = field(default_factory=dict)  # more of the environment, for all
    settings: dict[str, str] = field(default_factory=dict)  # instead of those of .env
    containers: dict[str, Container] = field(default_factory=dict)
    _services: dict[str, Any] = field(init=False)
    _net: str = field(
        default_factory=lambda: f"127.{random.randint(1, 254)}.{random.randint(1, 254)}"
    )

    def __post_init__(self) -> None:
        secret = {"SPARK_AUTHENTICATE": "true", "SPARK_SECRET": SPARK_SECRET}
        self._services = composed(**secret, **self.settings)["services"]
        workers = int(self._services["spark-worker"]["deploy"]["replicas"])
        numbered = (f"spark-worker-{number}" for number in range(1, workers + 1))
        for name in ("spark-master", *numbered, "service"):
            self._add(name)

    def _add(self, name: str) -> Container:
        own = self.root / name
        own.mkdir()
        address = f"{self._net}.{len(self.containers) + 1}"
        if self.network is not None:
            address = self.network.address(name)
        master = self.containers.get("spark-master")
        added = self.containers[name] = Container(
            name,
            address,
            own / "log",
            self._services[re.sub(r"-\d+$", "", name)],
            {
                "spark-master": address if master is None else master.address,
                "kafka:9092": self.brokers,
                "0.0.0.0": address,
                "127.0.0.1": address,
                **self._places(own),
            },
            self.further,
            [] if self.network is None else self.network.command(name),
        )
        return added

    def one_more_worker(self) -> Container:
        """`docker compose up --scale spark-worker=N+1`."""
        added = self._add(f"spark-worker-{len(self.workers) + 1}")
        added.start()
        added.until_healthy()
        return added

    def second_service(self) -> Container:
        """`docker compose up --scale service=2`; it is not started yet."""
        return self._add("service-2")

    def _places(self, own: Path) -> dict[str, str]:
        """Directories of the image and of the volumes. Only /data is the same for all."""
        data = self.root / "data"
        data.mkdir(exist_ok=True)
        (own / "tmp").mkdir()
        (own / "cache").mkdir()
        places = {"/opt/retally": str(IMAGE)}
        if IMAGE == CHECKOUT:  # whose virtual environment may be of another Python, elsewhere
            packages = "/opt/retally/.venv/lib/python3.11/site-packages"
            places[f"{packages}/pyspark"] = f"{sysconfig.get_path('purelib')}/pyspark"
            places["/opt/retally/.venv/bin"] = str(Path(sys.executable).parent)
        return {
            **places,
            "/data": str(data),
            "/cache/state": str(own / "cache" / "state"),
            "/cache/master": str(own / "cache" / "master"),
            "/cache/work": str(own / "cache" / "work"),
            "/cache/spark": str(own / "cache" / "spark"),
            "/tmp": str(own / "tmp"),
        }

    @property
    def workers(self) -> list[Container]:
        return [each for name, each in self.containers.items() if "worker" in name]

    def up(self, *, service: bool = True) -> None:
        """In the order of depends_on: each waits for the health of those before."""
        of_spark = (["spark-master"], [each.name for each in self.workers])
        for group in (*of_spark, ["service"] if service else []):
            for name in group:
                self.containers[name].start()
            for name in group:
                self.containers[name].until_healthy()

    def down(self) -> None:
        for container in self.containers.values():
            container.kill()


@contextmanager
def stack(
    root: Path,
    brokers: str,
    network: Network | None = None,
    settings: dict[str, str] | None = None,
    **further: str,
) -> Iterator[Stack]:
    running = Stack(root, brokers, network, further, settings or {})
    try:
        yield running
    finally:
        running.down()
