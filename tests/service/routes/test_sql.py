"""SQL over results by HTTP."""

from __future__ import annotations

import json
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal

import httpx
import psutil
import pyarrow as pa
import pytest

import retally
from retally import Refused
from schemas import limits
from service.routes.sql import BoundedProcess
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
        ("FROM items AT EPOCH 77", "has no epoch 77"),
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
    slow = "SELECT SUM(i % 7) FROM range(100000000) r(i)"
    with ThreadPoolExecutor(3 * limits.SQL_AT_ONCE_MAX) as pool:
        answers = list(pool.map(lambda _: ask(client, slow), range(3 * limits.SQL_AT_ONCE_MAX)))
    codes = [each.status_code for each in answers]
    assert set(codes) <= {200, 429, 422}
    assert codes.count(429) >= limits.SQL_AT_ONCE_MAX + 1
    busy = next(each for each in answers if each.status_code == 429)
    assert (busy.json()["code"], busy.headers["Retry-After"]) == ("too-many-requests", "5")
    for sql in ("FROM range(1000000)", "SELECT repeat('x', 1000000) FROM range(2000)"):
        refused = ask(client, sql)
        assert (refused.status_code, refused.json()["code"]) == (422, "sql-refused")
    assert ask(client, "SELECT COUNT(*) AS n FROM items").status_code == 200


def test_a_statement_ends_with_its_client_and_is_nicer_than_the_service(
    client: httpx.Client, served: Served
) -> None:
    heavy = "SELECT levenshtein(repeat('a', 300000), repeat('b', 300000))"

    def statements() -> list[psutil.Process]:
        children = psutil.Process(served.process.pid).children(recursive=True)
        with suppress(psutil.NoSuchProcess):
            return [each for each in children if "sql" in each.cmdline()]
        return []

    nice = psutil.Process(served.process.pid).nice()
    place = httpx.URL(served.address)
    with socket.create_connection((place.host, place.port)) as asking:
        body = json.dumps({"sql": heavy}).encode()
        asking.sendall(
            b"POST /v1/sql HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (place.netloc, len(body), body)
        )
        (started,) = eventually(statements)
        assert eventually(lambda: started.nice() == nice + 5)
    eventually(lambda: not statements(), seconds=1.5)
    assert ask(client, "SELECT 1 AS n").json()["rows"] == [{"n": 1}]


def test_an_answer_that_is_larger_as_text_is_refused(
    client: httpx.Client, watched: WatchedTable
) -> None:
    # In Arrow a boolean is a bit; these are 2.5 MB, and more than 64 MiB of text.
    columns = ", ".join(f"TRUE AS c{number}" for number in range(200))
    refused = ask(client, f"SELECT {columns} FROM range(100000)")
    assert (refused.status_code, refused.json()["code"]) == (422, "sql-refused")
    assert refused.json()["detail"] == "the answer has more than 64 MiB; ask for less"


def test_the_service_holds_no_more_of_an_answer_than_its_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SQL_ANSWER_BYTES_MAX", 100_000)
    endless = "import sys\nwhile True: sys.stdout.write('x' * 1000)"
    done = BoundedProcess([sys.executable, "-c", endless]).run(b"SELECT 1")
    assert (len(done.answer), done.late, done.code) == (100_001, False, -signal.SIGKILL)
    talkative = "import sys; sys.stderr.write('e' * 2**20); sys.stdout.write(sys.stdin.read())"
    done = BoundedProcess([sys.executable, "-c", talkative]).run(b"SELECT 1")
    assert (done.code, done.answer, done.errors) == (0, b"SELECT 1", "e" * 2**16)
    deaf = "raise SystemExit(2)"  # ends without reading its statement
    assert BoundedProcess([sys.executable, "-c", deaf]).run(b"x" * 2**20).code == 2
    monkeypatch.setattr("service.routes.sql._SECONDS_MAX", 0.5)
    late = BoundedProcess([sys.executable, "-c", "import time; time.sleep(60)"]).run(b"SELECT 1")
    assert (late.late, late.answer) == (True, b"")


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
