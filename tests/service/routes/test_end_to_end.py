"""By HTTP only: a real broker, a job that the service starts, its results, changes and ends."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from jobs.edge.process.broker import Broker
from schemas.directory.documents import read_document
from schemas.directory.paths import JobDirectory
from schemas.directory.reports import PHASES as START_PHASES
from schemas.directory.reports import StartProgress
from service.routes.metrics import PHASES
from service.supervision import job_process
from tests.support.command.shop import Shop, ordered, spec_text
from tests.support.service.followers import following
from tests.support.service.served import Served, end_jobs, eventually
from tests.support.topics import committed_records

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(580)]

JOB = "/v1/jobs/items"
SECONDS = 400.0


@pytest.fixture
def shop(broker: Broker) -> Iterator[Shop]:
    shop = Shop(broker.address, f"shop-{uuid.uuid4().hex[:8]}", seed=3)
    yield shop
    shop.close()


def rows(client: httpx.Client) -> list[dict[str, Any]]:
    answer = client.get(f"{JOB}/results", params={"limit": 1_000})
    return ordered(answer.json()["rows"]) if answer.status_code == 200 else []


def truth(shop: Shop) -> list[dict[str, Any]]:
    """What the changed query says."""
    least: dict[str | None, int | None] = {}
    for name, cnt in shop.rows.values():
        known = least.get(name)
        least[name] = cnt if known is None or (cnt is not None and cnt < known) else known
    return [{**row, "low": least[row["name"]]} for row in shop.truth()]


def state(served: Served, wanted: str) -> dict[str, Any]:
    found: dict[str, Any] = eventually(
        lambda: (job := served.job("items"))["actual"] == wanted and job, SECONDS
    )
    return found


def test_results_changes_and_explanations_over_http_and_a_kill_of_the_service(
    broker: Broker, shop: Shop, data: Path
) -> None:
    served = Served.start(data, brokers=broker.address)
    try:
        with served.client() as client:
            sink = f"items-{uuid.uuid4().hex[:8]}"
            body = spec_text("items", shop.topic, sink)
            assert client.put(JOB, content=body).status_code == 201
            shop.feed(150)
            assert client.post(f"{JOB}/start").status_code == 202
            eventually(lambda: rows(client) == shop.truth(), SECONDS)
            output = client.get(f"{JOB}/results/pear/explain").json()
            assert [output["row"]] == [row for row in shop.truth() if row["name"] == "pear"]
            (bad,) = client.get(f"{JOB}/quarantine").json()["messages"]
            assert "JSON" in bad["reason"]
            before = served.job("items")["epoch"]
        pid = job_process.find_writer(data / "jobs" / "items" / "lock")
        served.kill()

        # The job went on without its service; the next one finds it, and what it did.
        shop.feed(50)
        served = Served.start(data, brokers=broker.address)
        with served.client() as client:
            with following(served, since=before) as stream:
                eventually(lambda: rows(client) == shop.truth(), SECONDS)
                epochs = {event.data["epoch"] for event in _until_newest(stream, served)}
            assert epochs == set(range(before + 1, served.job("items")["epoch"] + 1))
            assert job_process.find_writer(data / "jobs" / "items" / "lock") == pid
            client.post(f"{JOB}/stop")
            assert state(served, "STOPPED")["desired"] == "STOPPED"
            assert _folded(broker, sink) == shop.truth()
            assert client.delete(f"{JOB}?data=drop").status_code == 204
    finally:
        served.stop()
        end_jobs(data)


@pytest.mark.slow
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
            start = read_document(JobDirectory(data, "items").start, StartProgress)
            assert start is not None
            assert tuple(phase.name for phase in start.phases) == START_PHASES  # it can commit
            assert [phase.began_at for phase in start.phases] == sorted(
                phase.began_at for phase in start.phases
            )
            eventually(lambda: rows(client) == shop.truth(), SECONDS)

            _rests(client, served, shop)
            _changes(client, served, shop)
            pid = job_process.find_writer(data / "jobs" / "items" / "lock")

            # The service dies: the job goes on, and the next one finds it, and what it did.
            served.kill()
        shop.feed(100)
        served = Served.start(data, brokers=broker.address)
        with served.client() as client:
            eventually(lambda: rows(client) == truth(shop), SECONDS)
            state(served, "RUNNING")
            assert job_process.find_writer(data / "jobs" / "items" / "lock") == pid
            kept = client.post(f"{JOB}/savepoints", json={"name": "kept"}).json()
            then = truth(shop)

            # The job dies: it is started again, and its followers see no gap.
            with following(served, since=kept["epoch"]) as stream:
                assert pid is not None
                os.killpg(pid, signal.SIGKILL)
                shop.feed(100)
                eventually(lambda: rows(client) == truth(shop), SECONDS)
                epochs = {event.data["epoch"] for event in _until_newest(stream, served)}
            newest = served.job("items")["epoch"]
            assert epochs == set(range(kept["epoch"] + 1, newest + 1))
            state(served, "RUNNING")
            eventually(lambda: (served.job("items")["lag"] or {}).get("records") == 0, SECONDS)
            assert any("epoch" in line["message"] for line in _log(client))
            wanted = [
                f'retally_{name}{{job="items",topic="'
                for name in ("partition_lag_records", "partition_watermark_ms")
            ]
            phase = 'retally_job_phase_seconds{{job="items",phase="{}"}}'
            wanted += map(phase.format, PHASES)

            def are_told() -> bool:
                shop.feed(1)  # what an epoch took to commit and publish is told by the next one
                return all(each in metrics(client) for each in wanted)

            eventually(are_told)

            _set_back(client, served, then)
            assert not (data / "jobs" / "items").exists()
    finally:
        served.stop()
        end_jobs(data)


def metrics(client: httpx.Client) -> str:
    return client.get("/metrics").text


def _set_back(client: httpx.Client, served: Served, then: list[dict[str, Any]]) -> None:
    """Stop the job, set it back to its savepoint, audit what it computed, and delete it."""
    client.post(f"{JOB}/stop")
    state(served, "STOPPED")
    asked = client.post(f"{JOB}/rewind", json={"to": "kept"})
    assert asked.status_code == 202, asked.text
    done = _ended(client, asked.headers["location"])
    assert done["state"] == "DONE", done
    eventually(lambda: rows(client) == then, SECONDS)
    asked = client.post(f"{JOB}/audit")
    report = _ended(client, asked.headers["location"])
    assert (report["state"], report["reason"]) == ("DONE", None)
    assert report["result"]["verdict"] == "equal", report
    assert client.delete(f"{JOB}?data=drop").status_code == 204


def _rests(client: httpx.Client, served: Served, shop: Shop) -> None:
    """The job is paused, and comes back."""
    client.post(f"{JOB}/pause")
    assert state(served, "PAUSED")["desired"] == "PAUSED"
    shop.feed(50)
    client.post(f"{JOB}/resume")
    state(served, "RUNNING")
    eventually(lambda: rows(client) == shop.truth(), SECONDS)


def _changes(client: httpx.Client, served: Served, shop: Shop) -> None:
    """Its query changes while it runs; who follows is led from the old results to the new."""
    with following(served) as stream:
        _evolved(client, served, shop)
        shop.feed(50)
        eventually(lambda: rows(client) == truth(shop), SECONDS)
        seen = list(_until_newest(stream, served))
    (output,) = (event.data for event in seen if event.kind == "columns")
    assert (output["epoch"], output["columns"]["low"]) == (_epoch_of(client, "evolve"), "INT")


def _evolved(client: httpx.Client, served: Served, shop: Shop) -> None:
    """Give the running job another query, and see that it runs again."""
    spec = client.get(JOB).json()["spec"]
    spec["query"] = spec["query"].replace("COUNT(*) AS n", "COUNT(*) AS n, MIN(cnt) AS low")
    refused = client.put(JOB, json=spec)
    assert (refused.status_code, refused.json()["code"]) == (409, "query-fixed")
    pending = client.put(JOB, params={"replace": "true"}, json=spec).json()
    assert (pending["actual"], pending["evolution"]["added"]) == ("RUNNING", ["low"])
    assert pending["evolution"]["replay_from"]["topics"] == [shop.topic]
    done = _ended(client, client.post(f"{JOB}/approve").headers["location"])
    assert done["state"] == "DONE", done
    job = state(served, "RUNNING")
    assert (job["revision"], job["pending"], job["desired"]) == (2, None, "RUNNING")


def _epoch_of(client: httpx.Client, kind: str) -> int:
    operations = client.get(f"{JOB}/operations").json()["operations"]
    (epoch,) = (each["result"]["epoch"] for each in operations if each["kind"] == kind)
    return int(epoch)


def _folded(broker: Broker, topic: str) -> list[dict[str, Any]]:
    """What a consumer of the changelog has now."""
    found: dict[bytes, dict[str, Any]] = {}
    for record in committed_records(broker.address, topic):
        change = json.loads(record.value)
        if change["op"] == "-D":
            del found[record.key]
        elif change["op"] != "-U":
            found[record.key] = change["row"]
    return ordered(list(found.values()))


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
    output: dict[str, Any] = eventually(
        lambda: (found := client.get(place).json())["state"] in ("DONE", "FAILED") and found, 200
    )
    return output
