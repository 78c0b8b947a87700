"""A running job's query is changed while changes keep coming: from its state, three times, and by
reading its topic again. After each change an audit recomputes what it says, and at the end the
topic of its changes, folded, is its results."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

import retally
from jobs.edge.process.broker import Broker
from retally import Client, Operation
from tests.support.command.shop import COLUMN_TYPES, Shop
from tests.support.jobs.running_job import consumed
from tests.support.service.served import Served, end_jobs, eventually

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(1_200)]

SECONDS = 240.0
FIRST = "SELECT name, SUM(cnt) AS total, MAX(cnt) AS top, COUNT(*) AS n FROM product GROUP BY name"
# What is said of the query: how it goes on, and what it is then.
CHANGES = {
    "a new aggregate over a multiset that is there": (
        "keep",
        "SELECT name, SUM(cnt) AS total, MAX(cnt) AS top, MIN(cnt) AS low, "
        "COUNT(DISTINCT cnt) AS kinds, COUNT(*) AS n FROM product GROUP BY name",
    ),
    "a column less": (
        "keep",
        "SELECT name, MAX(cnt) AS top, MIN(cnt) AS low, COUNT(*) AS n FROM product GROUP BY name",
    ),
    "a HAVING": (
        "keep",
        "SELECT name, MAX(cnt) AS top, MIN(cnt) AS low, COUNT(*) AS n FROM product GROUP BY name "
        "HAVING MAX(cnt) > 50",
    ),
    "another WHERE": (
        "replay",
        "SELECT name, MAX(cnt) AS top, SUM(cnt) AS total FROM product WHERE cnt > 10 GROUP BY name",
    ),
}


def spec(topic: str, sink: str, query: str) -> dict[str, Any]:
    return {
        "name": "items",
        "source": {"topic": topic},
        "columns": COLUMN_TYPES,
        "query": query,
        "minibatch": {"size": 200, "latency": "200ms", "max_rows": 2_000},
        "sink": {"topic": sink},
    }


def goes_on(client: Client) -> None:
    """Until it has read some more."""
    epoch = client.job("items").epoch or 0
    eventually(lambda: (client.job("items").epoch or 0) > epoch + 2, SECONDS)


def folded(records: list[Any]) -> list[dict[str, Any]]:
    """What a consumer of the changelog has; every retraction has to name what is there. Where the
    columns become others the rows of before have those too: a new one was NULL, one that is gone
    is not told any more. That happens in one epoch for each change of columns."""
    rows: dict[str, dict[str, Any]] = {}
    reshaped: set[int] = set()
    for record in records:
        change, key = record["value"], record["key"]
        if change["op"] in ("-U", "-D"):
            before = rows.pop(key)
            if before.keys() != change["row"].keys():
                reshaped.add(change["epoch"])
                before = {column: before.get(column) for column in change["row"]}
            assert before == change["row"], change
        else:
            assert key not in rows, change
            rows[key] = change["row"]
    assert len(reshaped) <= len(CHANGES), reshaped
    return sorted(rows.values(), key=str)


def test_a_running_job_takes_other_queries_under_load(broker: Broker, tmp_path: Path) -> None:
    name = f"shop-{uuid.uuid4().hex[:8]}"
    shop, sink = Shop(broker.address, name, seed=5), f"{name}-changes"
    served = Served.start(tmp_path, brokers=broker.address)
    client = retally.connect(served.address)
    try:
        client.put(name="items", spec=spec(name, sink, FIRST))
        client.start("items")
        with shop.feeding(40, every_seconds=0.1):  # some hundred a second
            goes_on(client)
            for told, (way, query) in CHANGES.items():
                client.put(name="items", spec=spec(name, sink, query), replace=True)
                operation = client.approve("items", "replay" if way == "replay" else None)
                assert isinstance(operation, Operation)
                done = client.wait_until_ended(operation)
                assert done.state == "DONE", (told, done)
                goes_on(client)
                assert client.job("items").actual == "RUNNING", told
                audit = client.wait_until_ended(client.audit("items"))
                assert audit.result is not None, (told, audit)
                assert audit.result["verdict"] == "equal", (told, audit)
        eventually(lambda: getattr(client.job("items").lag, "records", 1) == 0, SECONDS)
        client.stop("items")
        client.until("items", "STOPPED", seconds=SECONDS)
        audit = client.wait_until_ended(client.audit("items"))
        assert audit.result is not None
        assert audit.result["verdict"] == "equal"
        results = sorted(client.results("items"), key=str)
        assert folded(consumed(broker.address, sink)) == results
        assert len(results) > 5
    finally:
        client.close()
        served.stop()
        end_jobs(tmp_path)
        shop.close()
