"""A job of the service on a stack of processes, over HTTP: start it, and wait until it is exact."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from service.supervision import job_process
from tests.deploy.containers import Stack, stack
from tests.support.command.shop import Shop, ordered, spec_text
from tests.support.network.hosts import Network
from tests.support.service.served import eventually

JOB = "/v1/jobs/items"
SECONDS = 180.0  # some ten on an idle machine


class ClusterJob:
    """The job `items` over a shop's topic."""

    def __init__(self, running: Stack, client: httpx.Client, shop: Shop) -> None:
        self.stack = running
        self.client = client
        self.shop = shop
        self.sink = f"items-{uuid.uuid4().hex[:8]}"

    def start(self, max_rows: int = 100) -> None:
        spec = spec_text("items", self.shop.topic, self.sink, max_rows)
        put = self.client.put(JOB, content=spec)
        assert put.status_code == 201, put.text
        assert self.client.post(f"{JOB}/start").status_code == 202

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(JOB).json()
        return found

    @property
    def writer(self) -> int | None:
        """The process of its driver."""
        return job_process.find_writer(self.stack.root / "data" / "jobs" / "items" / "lock")

    def until_exact(self, seconds: float = SECONDS) -> None:
        truth = self.shop.truth()
        try:
            eventually(lambda: self.rows() == truth, seconds)
        except AssertionError:
            log = self.stack.root / "data" / "service" / "jobs" / "items" / "log"
            print(log.read_text(errors="replace")[-6_000:] if log.exists() else "no log")
            print(self.client.get(JOB).text)
            raise

    def rows(self) -> list[dict[str, Any]]:
        answer = self.client.get(f"{JOB}/results", params={"limit": 1_000})
        return ordered(answer.json()["rows"]) if answer.status_code == 200 else []

    def cluster(self) -> dict[str, Any]:
        """Return what Spark's master says of itself."""
        address = self.stack.containers["spark-master"].address
        found: dict[str, Any] = httpx.get(f"http://{address}:8080/json/", trust_env=False).json()
        return found

    def hosts_with_state(self) -> list[str]:
        """Return the workers whose executors have folded: each has a hot state of its own."""
        shared = self.stack.root / "data" / "cache"
        assert not list(shared.rglob("columns")), "a hot state lies where all hosts write"
        return [
            worker.name
            for worker in self.stack.workers
            if list((worker.log.parent / "cache" / "state" / "items").rglob("columns"))
        ]

    def stop(self) -> None:
        self.client.post(f"{JOB}/stop")
        eventually(lambda: self.document()["actual"] == "STOPPED", SECONDS)


@contextmanager
def job_on_cluster(
    root: Path,
    brokers: str,
    shop: Shop,
    network: Network | None = None,
    settings: dict[str, str] | None = None,
    **further: str,
) -> Iterator[ClusterJob]:
    """Start the stack; the job is not started yet."""
    with stack(root, brokers, network, settings, **further) as running:
        service = running.containers["service"]
        # docker compose run service retally serve --data /data --new-token me=admin
        made = service.run("retally", "serve", "--data", "/data", "--new-token", "me=admin")
        assert made.returncode == 0, made.stderr
        running.up()
        with httpx.Client(
            base_url=f"http://{service.address}:8080",
            headers={"Authorization": f"Bearer {made.stdout.strip()}"},
            timeout=30,
            trust_env=False,
        ) as client:
            yield ClusterJob(running, client, shop)
