"""A service runs a job whose sources are on two clusters, though one is down now and then."""

from __future__ import annotations

import json
import time
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import duckdb
import pytest

import retally
from jobs.edge.process.broker import Broker
from retally import Client, Operation, Refused
from tests.support.jobs.canal_messages import message
from tests.support.jobs.running_job import create_topic, produce
from tests.support.service.served import Served, eventually

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.costly("two clusters, one of them down twice, a replay and an audit"),
]

SECONDS = 240
Row = tuple[Any, ...]
NOON, DAY = 1_767_268_800_000, 86_400_000
COLUMNS = {
    "orders": {"id": "INT", "shop": "INT", "amount": "INT"},
    "shops": {"id": "INT", "region": "STRING"},
}
QUERY = """\
SELECT s.region, SUM(o.amount) AS total, COUNT(*) AS n
FROM orders AS o LEFT JOIN shops AS s ON o.shop = s.id GROUP BY s.region"""
ALIGN = {"time": "es", "align": {"group": "g", "max_drift": "1h", "every": "200ms"}}


class Shop:
    """Both tables, their topics on two clusters, and the job that joins them."""

    def __init__(self, west: Broker, east: Broker, topic: str) -> None:
        self.brokers = {"orders": west, "shops": east}
        self.topics = {"orders": f"{topic}-orders", "shops": f"{topic}-shops"}
        self.rows: dict[str, list[Row]] = {"orders": [], "shops": []}
        for table, broker in self.brokers.items():
            create_topic(broker.address, self.topics[table], 1)

    def spec(self) -> dict[str, Any]:
        sources: dict[str, Any] = {
            table: {"topic": self.topics[table], "columns": columns, "watermark": ALIGN}
            for table, columns in COLUMNS.items()
        }
        sources["shops"]["connection"] = "east"
        return {
            "sources": sources,
            "query": QUERY,
            "state": {"buckets": 4},
            "max_bad_fraction": 1.0,
        }

    def send(self, table: str, *rows: Row, es: int = NOON, kind: str = "INSERT") -> None:
        """Insert or delete rows, in one message."""
        named = [dict(zip(COLUMNS[table], map(str, row), strict=True)) for row in rows]
        value = message(kind, named, es=es)
        produce(self.brokers[table].address, self.topics[table], [(0, value)])
        for row in rows:
            (self.rows[table].remove if kind == "DELETE" else self.rows[table].append)(row)

    def truth(self) -> list[Row]:
        connection = duckdb.connect()
        for table, columns in COLUMNS.items():
            kinds = ", ".join(f"{name} {kind}" for name, kind in columns.items())
            connection.execute(f"CREATE TABLE {table} ({kinds})")
            for row in self.rows[table]:
                connection.execute(f"INSERT INTO {table} VALUES {row}")
        return sorted(connection.execute(QUERY).fetchall(), key=str)

    def await_truth(self, client: Client) -> None:
        eventually(partial(shows, client, self.truth()), SECONDS)


def shows(client: Client, rows: list[Row]) -> bool:
    try:
        return sorted((tuple(row.values()) for row in client.results("two")), key=str) == rows
    except Refused:  # it has no epoch yet
        return False


def test_a_job_of_two_clusters_goes_on_once_both_are_there(
    broker: Broker, topic: str, data: Path, tmp_path: Path
) -> None:
    with Broker(tmp_path / "east") as east:
        shop = Shop(broker, east, topic)
        connections = tmp_path / "connections.yaml"
        connections.write_text(f"east: {{bootstrap: '{east.address}'}}")
        options = ("--connections", str(connections))
        with Served.start(data, *options, brokers=broker.address) as served:
            client = retally.connect(served.address)
            _outlive_outages(shop, client, east)
            _show_each_source(shop, client, served)
            _wait_for_the_slower_cluster(shop, client)
            _send_a_refused_message_again(shop, client)
            _read_another_topic(shop, client)
            client.stop("two")
            client.until("two", "STOPPED", seconds=SECONDS)


def _outlive_outages(shop: Shop, client: Client, east: Broker) -> None:
    """One cluster is down when the job starts, and once more while it runs."""
    shop.send("orders", (1, 1, 5), (2, 2, 7), (3, 9, 1))
    shop.send("shops", (1, "north"), (2, "south"))
    east.stop()
    client.put(name="two", spec=shop.spec())
    client.start("two")
    why = f"no answer from {east.address}"
    eventually(lambda: why in (client.job("two").reason or ""), SECONDS)
    assert client.job("two").epoch is None
    east.start()
    shop.await_truth(client)
    east.stop()
    shop.send("orders", (4, 1, 11))
    east.start()
    shop.send("shops", (9, "west"))
    shop.await_truth(client)


def _show_each_source(shop: Shop, client: Client, served: Served) -> None:
    def lag_is_none() -> bool:
        lag = client.offsets("two").lag
        return lag is not None and lag.sources == {"orders": 0, "shops": 0}

    eventually(lag_is_none)
    assert client.offsets("two").sources == {name: [at] for name, at in shop.topics.items()}
    with served.client() as http:
        lines = http.get("/metrics").text.splitlines()
        page = http.get("/jobs/two").text
        spec = json.dumps({"name": "two", **shop.spec()})
        trial = unescape(http.post("/preview?name=two&sample=true", content=spec).text)
    for name, at in shop.topics.items():
        assert any(f'source="{name}"' in line and f'topic="{at}"' in line for line in lines)
        assert at in page and at in trial
    assert '"region": "north", "total": 16, "n": 2' in trial and "amount=11" in trial
    explained = client.explain("two", {"region": "north"})
    assert isinstance(explained.joined, list)
    orders = {each.rows[0].row["o.amount"] for each in explained.joined}
    assert orders == {5, 11} and {len(each.rows) for each in explained.joined} == {2}


def _wait_for_the_slower_cluster(shop: Shop, client: Client) -> None:
    """The only partition of one cluster is a day ahead, and not read until the other follows."""
    orders, shops = shop.topics.values()
    shop.send("orders", (5, 2, 13), es=NOON + DAY)
    shop.await_truth(client)
    eventually(lambda: "ahead" in client.watermarks("two").topics[orders]["partitions"]["0"])
    before = shop.truth()
    time.sleep(2)  # the query has begun anew without that cluster
    shop.send("orders", (6, 1, 17), es=NOON + DAY)
    shop.send("shops", (3, "none"))
    eventually(lambda: client.offsets("two").topics[shops]["0"].next == 3, SECONDS)
    assert shows(client, before), "the partition that is ahead is not read"
    shop.send("shops", (4, "none"), es=NOON + DAY)
    shop.await_truth(client)


def _send_a_refused_message_again(shop: Shop, client: Client) -> None:
    bad = message("INSERT", [{"id": "x", "region": "east"}], es=NOON + DAY)
    produce(shop.brokers["shops"].address, shop.topics["shops"], [(0, bad)])
    (refused,) = eventually(lambda: [*client.quarantine("two")], SECONDS)
    assert (refused.source, refused.topic) == ("shops", shop.topics["shops"])
    good = message("INSERT", [{"id": "6", "region": "east"}], es=NOON + DAY)
    done = client.wait_until_ended(client.replay("two", refused.id, good), SECONDS)
    assert done.state == "DONE", done.reason
    shop.rows["shops"].append((6, "east"))
    shop.send("orders", (7, 6, 19), es=NOON + DAY)
    shop.await_truth(client)


def _read_another_topic(shop: Shop, client: Client) -> None:
    """A changed topic is approved while the job runs, and has other rows."""
    shop.topics["shops"] += "-2"
    create_topic(shop.brokers["shops"].address, shop.topics["shops"], 1)
    shop.rows["shops"] = []
    shop.send("shops", (1, "south"), (2, "south"), (3, "north"), es=NOON + DAY)
    pending = client.put(name="two", spec=shop.spec(), replace=True)
    assert pending.evolution is not None and pending.evolution.replay_from is not None
    assert pending.evolution.replay_from.start == {"orders": "earliest", "shops": "earliest"}
    operation = client.approve("two", "replay")
    assert isinstance(operation, Operation)
    shop.send("orders", (8, 3, 23), es=NOON + DAY)
    done = client.wait_until_ended(operation, SECONDS)
    assert (done.state, done.reason) == ("DONE", None)
    shop.await_truth(client)
    shop.send("shops", (1, "south"), es=NOON + DAY, kind="DELETE")
    shop.await_truth(client)
    report = client.wait_until_ended(client.audit("two"), SECONDS)
    assert report.result is not None and report.result["verdict"] == "equal", report
