"""By HTTP only: a real broker, a job that the service starts, its results, changes and ends."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from jobs.edge.broker import Broker
from service import job_process
from tests.command.shop import Shop, ordered, spec_text
from tests.service.conftest import end_jobs
from tests.service.served import Served, eventually
from tests.service.test_changes import following

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(280)]

JOB = "/v1/jobs/items"
SECONDS = 60.0


@pytest.fixture
def shop(broker: Broker) -> Iterator[Shop]:
    shop = Shop(broker.address, f"shop-{uuid.uuid4().hex[:8]}", seed=3)
    yield shop
    shop.close()


def rows(client: httpx.Client) -> list[dict[str, Any]]:
    answer = client.get(f"{JOB}/results", params={"limit": 1_000})
    return ordered(answer.json()["rows"]) if answer.status_code == 200 else []


def state(served: Served, wanted: str) -> dict[str, Any]:
    found: dict[str, Any] = eventually(
        lambda: (job := served.job("items"))["actual"] == wanted and job, SECONDS
    )
    return found


def test_a_job_lives_by_http_alone_through_kills_of_both(
    broker: Broker, shop: Shop, data: Path
) -> None:
    served = Served.start(data, brokers=broker.address)
    try:
        with served.client() as client:
            body = spec_text("items", shop.topic, f"items-{uuid.uuid4().hex[:8]}")
            assert client.put(JOB, content=body).status_code == 201
            shop.feed(200)
            client.post(f"{JOB}/start")
            state(served, "RUNNING")
            eventually(lambda: rows(client) == shop.truth(), SECONDS)
            pid = job_process.writer(data / "jobs" / "items" / "lock")

            # The service dies: the job goes on, and the next one finds it, and what it did.
            served.kill()
        shop.feed(100)
        served = Served.start(data, brokers=broker.address)
        with served.client() as client:
            eventually(lambda: rows(client) == shop.truth(), SECONDS)
            state(served, "RUNNING")
            assert job_process.writer(data / "jobs" / "items" / "lock") == pid
            kept = client.post(f"{JOB}/savepoints", json={"name": "kept"}).json()
            then = shop.truth()

            # The job dies: it is started again, and its followers see no gap.
            with following(served, since=kept["epoch"]) as stream:
                assert pid is not None
                os.killpg(pid, signal.SIGKILL)
                shop.feed(100)
                eventually(lambda: rows(client) == shop.truth(), SECONDS)
                seen = {event.data["epoch"] for event in _until_newest(stream, served)}
            newest = served.job("items")["epoch"]
            assert seen == set(range(kept["epoch"] + 1, newest + 1))
            state(served, "RUNNING")
            eventually(lambda: (served.job("items")["lag"] or {}).get("records") == 0, SECONDS)
            assert any("epoch" in line["message"] for line in _log(client))

            # It is stopped, and set back.
            client.post(f"{JOB}/stop")
            state(served, "STOPPED")
            asked = client.post(f"{JOB}/rewind", json={"to": "kept"})
            assert asked.status_code == 202, asked.text
            done = _ended(client, asked.headers["location"])
            assert done["state"] == "DONE", done
            eventually(lambda: rows(client) == then, SECONDS)

            # What it computed is what its topic says.
            asked = client.post(f"{JOB}/audit")
            report = _ended(client, asked.headers["location"])
            assert (report["state"], report["result"]["verdict"]) == ("DONE", "equal"), report
            assert client.delete(f"{JOB}?data=drop").status_code == 204
            assert not (data / "jobs" / "items").exists()
    finally:
        served.stop()
        end_jobs(data)


def _until_newest(stream: Any, served: Served) -> Iterator[Any]:
    newest = served.job("items")["epoch"]
    for event in stream:
        yield event
        if event.kind == "progress" and event.data["epoch"] >= newest:
            return


def _log(client: httpx.Client) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = client.get(f"{JOB}/logs").json()["lines"]
    return lines


def _ended(client: httpx.Client, place: str) -> dict[str, Any]:
    told: dict[str, Any] = eventually(
        lambda: (found := client.get(place).json())["state"] in ("DONE", "FAILED") and found, 100
    )
    return told
