"""SQL over results by HTTP."""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal

import httpx
import psutil
import pyarrow as pa
import pytest

import retally
from retally import Refused
from schemas.process.statements import WORKERS_MODULE
from tests.support.service.served import Served, eventually
from tests.support.service.tables import WatchedTable


@pytest.fixture(scope="module")
def watched(served: Served) -> WatchedTable:
    watched = WatchedTable(served)
    watched.write({"a": (1, 5), "b": (2,)}, {"a": (1,), None: (4,), "b": (2,)})
    watched.seen()
    return watched


def ask(client: httpx.Client, sql: str, format: str = "json") -> httpx.Response:
    return client.post("/v1/sql", json={"sql": sql, "format": format})


def test_the_answer_is_that_of_the_listing(client: httpx.Client, watched: WatchedTable) -> None:
    for table, asked in (("items", None), ("items AT EPOCH 1", "epoch:1")):
        listed = client.get("/v1/jobs/items/results", params={"as_of": asked} if asked else {})
        answered = ask(client, f"SELECT * FROM {table}")
        assert answered.status_code == 200, answered.text
        document = answered.json()
        assert document["epochs"] == {table: listed.json()["epoch"]}
        assert sorted(map(str, document["rows"])) == sorted(map(str, listed.json()["rows"]))
        assert json.loads(answered.headers["Retally-Epochs"]) == document["epochs"]


def test_two_epochs_are_joined(client: httpx.Client, watched: WatchedTable) -> None:
    sql = (
        "SELECT n.name, n.total - b.total AS more FROM items n "
        "JOIN items AT EPOCH 1 b USING (name) ORDER BY name"
    )
    assert ask(client, sql).json()["rows"] == [{"name": "a", "more": -5}, {"name": "b", "more": 0}]


def test_csv_and_arrow(client: httpx.Client, watched: WatchedTable) -> None:
    answered = ask(client, "SELECT name FROM items WHERE name = 'a'", "csv")
    assert answered.text.splitlines() == ["name", "a"]
    assert answered.headers["Content-Type"].startswith("text/csv")
    answered = ask(client, "SELECT name, top FROM items WHERE name = 'a'", "arrow")
    rows = pa.ipc.open_stream(answered.content).read_all()
    assert rows.to_pylist() == [{"name": "a", "top": 1}]


def test_what_is_refused_has_its_reason(client: httpx.Client, watched: WatchedTable) -> None:
    for sql, reason in (
        ("COPY items TO '/tmp/x'", "COPY is not possible"),
        ("SELECT * FROM read_text('/etc/hostname')", "disabled by configuration"),
        ("SELECT * FROM itmes", "the jobs are items"),
        ("FROM items AT EPOCH 77", "there is no epoch 77"),
        ("FROM items AT EPOCH 77", "LINE 1: FROM items AT EPOCH 77\n             ^"),
    ):
        refused = ask(client, sql)
        assert refused.status_code == 422
        assert refused.json()["code"] == "sql-refused"
        assert reason in refused.json()["detail"]
    wrong = client.post("/v1/sql", json={"sql": "SELECT 1", "form": "json"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "body-invalid")


def test_a_join_answers_every_column_of_both(client: httpx.Client, watched: WatchedTable) -> None:
    sql = "SELECT * FROM items JOIN items AT EPOCH 1 AS old USING (name) WHERE name = 'a'"
    answered = ask(client, sql)
    assert answered.status_code == 200, answered.text
    (row,) = answered.json()["rows"]
    assert list(row) == ["name", "total", "top", "total_1", "top_1"]
    assert [column["name"] for column in answered.json()["columns"]] == list(row)


def test_many_and_huge_statements_leave_room_for_the_next(
    client: httpx.Client, watched: WatchedTable
) -> None:
    slow = "SELECT SUM(i % 7) FROM range(30000000) r(i)"
    with ThreadPoolExecutor(12) as pool:
        codes = [each.status_code for each in pool.map(lambda _: ask(client, slow), range(12))]
    assert set(codes) <= {200, 429} and codes.count(200) > 3
    for sql in ("FROM range(1000000)", "SELECT repeat('x', 1000000) FROM range(2000)"):
        refused = ask(client, sql)
        assert (refused.status_code, refused.json()["code"]) == (422, "sql-refused")
    assert ask(client, "SELECT COUNT(*) AS n FROM items").status_code == 200


def find_workers(served: Served) -> list[psutil.Process]:
    """Return the SQL workers, whose parent is their spawner."""
    children = psutil.Process(served.process.pid).children(recursive=True)
    with suppress(psutil.NoSuchProcess):
        ours = [each for each in children if WORKERS_MODULE in each.cmdline()]
        return [each for each in ours if WORKERS_MODULE in (each.parent() or each).cmdline()]
    return []


def test_a_statement_ends_with_its_client_and_is_nicer_than_the_service(
    client: httpx.Client, served: Served
) -> None:
    heavy = "SELECT levenshtein(repeat('a', 300000), repeat('b', 300000))"
    ask(client, "SELECT 1 AS n")
    nice = psutil.Process(served.process.pid).nice()
    assert all(each.nice() == nice + 5 for each in find_workers(served))

    before = {each.pid for each in find_workers(served)}
    place = httpx.URL(served.address)
    with socket.create_connection((place.host, place.port)) as asking:
        body = json.dumps({"sql": heavy}).encode()
        asking.sendall(
            b"POST /v1/sql HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (place.netloc, len(body), body)
        )
        time.sleep(1)
        assert before <= {each.pid for each in find_workers(served)}
    eventually(lambda: before - {each.pid for each in find_workers(served)}, seconds=5)
    assert ask(client, "SELECT 1 AS n").json()["rows"] == [{"n": 1}]


def test_a_worker_that_dies_costs_its_statement_only(
    client: httpx.Client, served: Served, watched: WatchedTable
) -> None:
    ask(client, "SELECT 1 AS n")
    for worker in find_workers(served):
        worker.kill()
    time.sleep(0.2)
    assert ask(client, "SELECT 1 AS n").json()["rows"] == [{"n": 1}]
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(ask, client, "SELECT SUM(i % 7) FROM range(100000000000) r(i)")
        time.sleep(1)
        assert not slow.done()
        for worker in find_workers(served):
            worker.kill()
        assert slow.result().status_code == 422
        assert "more time or memory" in slow.result().json()["detail"]
    ask(client, "SELECT 1 AS n")
    (spawner,) = {each.ppid() for each in find_workers(served)}
    psutil.Process(spawner).kill()
    for _ in range(3):
        assert ask(client, "SELECT COUNT(*) AS n FROM items").json()["rows"] == [{"n": 3}]
    for worker in find_workers(served):
        worker.kill()
    time.sleep(0.2)
    assert ask(client, "SELECT 1 AS n").json()["rows"] == [{"n": 1}]


def test_an_answer_that_is_larger_as_text_is_refused(
    client: httpx.Client, watched: WatchedTable
) -> None:
    # In Arrow a boolean is a bit; these are 2.5 MB, and more than 64 MiB of text.
    columns = ", ".join(f"TRUE AS c{number}" for number in range(200))
    refused = ask(client, f"SELECT {columns} FROM range(100000)")
    assert (refused.status_code, refused.json()["code"]) == (422, "sql-refused")
    assert refused.json()["detail"] == "the answer has more than 64 MiB; ask for less"


def test_the_client_answers_statements(served: Served, watched: WatchedTable) -> None:
    client = retally.connect(served.address)
    found = client.sql("SELECT COUNT(*) AS n FROM items")
    assert (found.rows(), found.epochs) == ([{"n": 3}], {"items": watched.newest})
    assert client.sql("SELECT 1 AS n").read("csv").split() == [b"n", b"1"]
    assert client.sql("SELECT 1.5 AS n").to_arrow().to_pylist() == [{"n": Decimal("1.5")}]
    with pytest.raises(Refused) as refused:
        client.sql("DROP TABLE items").rows()
    assert refused.value.code == "sql-refused"
    client.close()
