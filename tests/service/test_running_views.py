"""A service changes the views of a running job; the others, topics and mirrors go on."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

import retally
from jobs.edge.process.broker import Broker
from retally import Client, Operation, Refused
from schemas.directory.paths import JobDirectory
from tests.support.jobs.canal_messages import delete, insert, row
from tests.support.jobs.published_records import fold_topic
from tests.support.jobs.running_job import create_topic, produce
from tests.support.service.served import Served, eventually

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(580)]

SECONDS = 400
QUERIES = {
    "sums": "SELECT k, SUM(v) AS s FROM t GROUP BY k",
    "whole": "SELECT COUNT(*) AS n FROM t",
    "by-value": "SELECT v, COUNT(*) AS times FROM t GROUP BY v",
}


def test_approved_views_join_and_leave_a_running_job(
    broker: Broker, topic: str, data: Path
) -> None:
    create_topic(broker.address, topic, 2)
    messages = [(0, insert(row("a", 1), row("a", 5))), (1, insert(row("b", 2)))]
    produce(broker.address, topic, messages)
    spec: dict[str, Any] = {"source": {"topic": topic}, "columns": {"k": "STRING", "v": "INT"}}
    spec["views"] = {name: view_of(topic, name) for name in ("sums", "whole")}
    job = JobDirectory(data, "items")
    served = Served.start(data, brokers=broker.address)
    client = retally.connect(served.address)
    try:
        client.put(name="items", spec=spec)
        client.start("items")
        wanted: dict[str, Any] = {"sums": [{"k": "a", "s": 6}, {"k": "b", "s": 2}]}
        await_views(client, broker.address, wanted | {"whole": [{"n": 3}]})
        eventually(partial(is_mirrored, job.at_view("whole").results, [{"n": 3}]), SECONDS)

        spec["views"] = {name: view_of(topic, name) for name in ("sums", "by-value")}
        pending = client.put(name="items", spec=spec, replace=True)
        assert pending.evolution is not None and pending.evolution.dropped == ["whole"]
        operation = client.approve("items", "replay")
        assert isinstance(operation, Operation)
        produce(broker.address, topic, [(0, delete(row("a", 5)))])
        done = client.wait_until_ended(operation, 2 * SECONDS)
        assert (done.state, done.reason) == ("DONE", None)
        assert client.job("items").desired == "RUNNING"
        produce(broker.address, topic, [(1, insert(row("b", 7)))])
        wanted = {"sums": [{"k": "a", "s": 1}, {"k": "b", "s": 9}]}
        wanted["by-value"] = [{"v": value, "times": 1} for value in (1, 2, 7)]
        await_views(client, broker.address, wanted)
        # Its first refresh is at the start; the second one comes minutes later.
        first = wanted["by-value"][:2]
        mirror = job.at_view("by-value").results
        eventually(lambda: any(is_mirrored(mirror, rows) for rows in (first, wanted["by-value"])))
        assert not job.at_view("whole").results.exists()
        assert [view.name for view in client.views("items")] == ["sums", "by-value"]
        report = client.wait_until_ended(client.audit("items"), SECONDS)
        assert report.result is not None and report.result["verdict"] == "equal", report
        client.stop("items")
        client.until("items", "STOPPED", seconds=SECONDS)
    finally:
        served.stop()


def view_of(topic: str, name: str) -> dict[str, Any]:
    return {
        "query": QUERIES[name],
        "state": {"buckets": 4},
        **({} if name == "sums" else {"mirror": "100ms"}),
        "sink": {"topic": f"{topic}-{name}", "partitions": 1},
    }


def await_views(client: Client, brokers: str, wanted: dict[str, Any]) -> None:
    """Wait until results and topic of each view are these rows."""
    spec = client.job("items").spec
    assert spec is not None
    topic = spec["source"]["topic"]
    for view, rows in wanted.items():
        expected = sorted(rows, key=str)
        eventually(partial(shows, client, f"items.{view}", expected), SECONDS)
        eventually(partial(is_published, brokers, f"{topic}-{view}", expected), SECONDS)


def shows(client: Client, view: str, rows: list[Any]) -> bool:
    try:
        return sorted(client.results(view), key=str) == rows
    except Refused:  # it has no epoch yet
        return False


def is_published(brokers: str, topic: str, rows: list[Any]) -> bool:
    return sorted(fold_topic(brokers, topic), key=str) == rows


def is_mirrored(mirror: Path, rows: list[Any]) -> bool:
    try:
        table = DeltaTable(str(mirror))
    except TableNotFoundError:
        return False
    return sorted(table.to_pyarrow_table().to_pylist(), key=str) == rows
