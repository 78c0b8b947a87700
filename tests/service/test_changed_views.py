"""Savepoints, rewind, clone and offsets of a job with views, over HTTP; and its metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import retally
from jobs.edge.process.broker import Broker
from tests.support.histories.products import history
from tests.support.jobs.running_job import RunningJob, produce
from tests.support.jobs.shop_views import VIEWS, make_shop_views
from tests.support.service.served import Served, eventually, problem

pytestmark = pytest.mark.spark

JOB = "/v1/jobs/items"


@pytest.fixture
def job(broker: Broker, topic: str, tmp_path: Path) -> RunningJob:
    """A stopped job at some epochs; its savepoint `half` is older."""
    job = make_shop_views(broker.address, topic, tmp_path)
    messages = [(each.partition, each.value) for each in history(24, 120).messages]
    produce(broker.address, topic, messages[:60])
    job.must_run()
    job.ask("savepoint", "items", "--name", "half")
    produce(broker.address, topic, messages[60:])
    job.must_run()
    return job


@pytest.fixture
def served(job: RunningJob) -> Iterator[Served]:
    with Served.start(job.data, brokers=job.brokers) as served:
        with served.client() as client:
            assert client.put(JOB, json=job.spec).status_code == 201
        eventually(lambda: served.job("items")["epoch"])
        yield served


def read_all(client: httpx.Client, name: str = "items", **parameters: str) -> dict[str, Any]:
    """Return the rows of all views at one epoch."""
    page = client.get(
        f"/v1/jobs/{name}/results", params={"views": ",".join(VIEWS), **parameters}
    ).json()
    return {view: each["rows"] for view, each in page["views"].items()}


@pytest.mark.slow
def test_a_service_changes_all_views_of_a_job_together(job: RunningJob, served: Served) -> None:
    with served.client() as client:
        (half,) = client.get(f"{JOB}/savepoints").json()["savepoints"]
        newest = client.get(f"{JOB}/offsets").json()
        before = read_all(client, as_of=f"epoch:{half['epoch']}")
        after = read_all(client)
        assert before != after and all(before.values())
        assert half["groups"] == sum(map(len, before.values()))
        made = client.post(f"{JOB}/savepoints", json={"name": "now"}).json()
        assert made["groups"] == sum(map(len, after.values()))
        _views_alone_are_refused(client)
        _a_view_must_be_named(client)
        python = retally.connect(served.address)
        done = python.wait_until_ended(python.rewind("items", "half"))
        assert done.state == "DONE", done.reason
        assert read_all(client) == before
        _check_metrics(client.get("/metrics").text, before)
        back = client.get(f"{JOB}/offsets").json()
        assert back["epoch"] == newest["epoch"] + 1 and back["topics"] != newest["topics"]
        done = python.wait_until_ended(python.clone("items", "copy", "now"))
        assert done.state == "DONE", done.reason
        eventually(lambda: served.job("copy")["epoch"] == 1)
        assert read_all(client, "copy") == after
        views = client.get("/v1/jobs/copy/views").json()["views"]
        assert [(each["name"], each["sink"]) for each in views] == [(v, None) for v in VIEWS]
        moved = python.wait_until_ended(python.move_offsets("items", None))
        assert moved.state == "DONE", moved.reason
        for name in ("items", "items.view-1"):
            document = client.get(f"/v1/jobs/{name}/offsets").json()
            assert document["moved"] == document["epoch"] == back["epoch"] + 1
        assert read_all(client) == before


def _check_metrics(text: str, rows: dict[str, Any]) -> None:
    """The metrics have the groups and the changes of each view, and their sums for the job."""
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    for view in VIEWS:
        assert values[f'retally_view_groups{{job="items",view="{view}"}}'] == str(len(rows[view]))
    assert values['retally_job_groups{job="items"}'] == str(sum(map(len, rows.values())))
    changed = [
        int(values[f'retally_view_counted_total{{job="items",view="{v}",what="changelog_rows"}}'])
        for v in VIEWS
    ]
    of_job = values['retally_job_counted_total{job="items",what="changelog_rows"}']
    assert all(changed) and int(of_job) == sum(changed)
    assert any('part="view-1:accumulators"' in name for name in values)


def _views_alone_are_refused(client: httpx.Client) -> None:
    view = f"{JOB}/views/view-1"
    for method, address, body in (
        ("POST", "savepoints", {}),
        ("GET", "savepoints", None),
        ("POST", "rewind", {"to": "half"}),
        ("POST", "clone", {"name": "other"}),
        ("DELETE", "offsets", None),
        ("GET", "logs", None),
        ("POST", "stop", None),
    ):
        refused = client.request(method, f"{view}/{address}", json=body)
        detail = problem(refused, 404, "job-unknown")["detail"]
        assert f"/v1/jobs/items/{address}" in detail, address


def _a_view_must_be_named(client: httpx.Client) -> None:
    """A job with only views has no quarantine of its own to send messages from."""
    one, several = "quarantine/1-t-0-0/replay", "quarantine/replay"
    problem(client.post(f"{JOB}/{one}", json={}), 404, "view-required")
    problem(client.post(f"{JOB}/{several}", json={"ids": ["1-t-0-0"]}), 404, "view-required")
