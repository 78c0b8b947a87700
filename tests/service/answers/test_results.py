"""Results over HTTP: one group, pages, conditions, the past; consistent whatever is committed."""

from __future__ import annotations

import csv
import io
import json
import random
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from jobs.reading.version import TableVersion
from schemas.types.sql_types import INT, STRING, SqlType
from tests.support.service.served import Served, eventually, problem
from tests.support.service.tables import WatchedTable, shown

RESULTS = "/v1/jobs/items/results"
NAMES = ["a", "b", "c/d", "{x", "ü", "", None, "null", "e%41", "f?g#h", "z", "zz"]


@pytest.fixture(scope="module")
def watched(served: Served) -> WatchedTable:
    """Twenty epochs in which groups come, change and go."""
    watched = WatchedTable(served)
    chance = random.Random(5)
    live: dict[Any, tuple[int, ...]] = {}
    for _ in range(20):
        for name in chance.sample(NAMES, 4):
            count = chance.randint(0, 3)
            live.pop(name, None)
            if count:
                live[name] = tuple(chance.randint(-9, 9) for _ in range(count))
        watched.write(dict(live))
    watched.write({**live, **{name: (index, 1) for index, name in enumerate(NAMES)}})
    watched.seen()
    return watched


def key_text(name: Any) -> str:
    if name is None or name == "" or name.startswith("{"):
        return quote(json.dumps({"name": name}), safe="")
    return quote(name, safe="")


def pages(client: httpx.Client, **params: Any) -> Iterator[dict[str, Any]]:
    cursor = None
    while True:
        given = params if cursor is None else {**params, "cursor": cursor}
        answer = client.get(RESULTS, params=given)
        assert answer.status_code == 200, answer.text
        yield answer.json()
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            return


def test_the_listing_is_the_table(client: httpx.Client, watched: WatchedTable) -> None:
    answer = client.get(RESULTS)
    assert shown(answer) == watched.live()
    assert answer.json()["epoch"] == watched.newest
    tag = TableVersion(watched.table.place.table).tag
    assert answer.headers["etag"] == f'W/"{watched.newest}-{tag}"'
    assert answer.headers["x-epoch"] == str(watched.newest)


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_every_key_has_an_address(client: httpx.Client, watched: WatchedTable, name: Any) -> None:
    total, top = watched.live()[name]
    answer = client.get(f"{RESULTS}/{key_text(name)}")
    assert answer.json() == {
        "epoch": watched.newest,
        "row": {"name": name, "total": total, "top": top},
    }


def test_keys_that_name_no_group_say_so(client: httpx.Client, watched: WatchedTable) -> None:
    output = problem(client.get(f"{RESULTS}/nobody"), 404, "group-unknown")
    assert output["epoch"] == watched.newest
    for bad in ('{"name":1}', '{"nam":"a"}', "{", '{"name":"a","x":1}', "%ff", "[{]"):
        text = bad if bad.startswith("%") else quote(bad, safe="")
        answer = client.get(f"{RESULTS}/{text}")
        assert answer.json()["code"] in ("key-invalid", "group-unknown"), bad


def test_an_unchanged_epoch_is_304(client: httpx.Client, watched: WatchedTable) -> None:
    tag = client.get(RESULTS).headers["etag"]
    for path in (RESULTS, f"{RESULTS}/a"):
        same = client.get(path, headers={"If-None-Match": tag})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
        of_another_table = f'W/"{watched.newest}-00000000"'
        for other in ('W/"1"', of_another_table):
            assert client.get(path, headers={"If-None-Match": other}).status_code == 200


@pytest.mark.parametrize("limit", [1, 2, 5, 12, 100])
@pytest.mark.parametrize("order", [None, "-total", "top,-name", "total,top,name", "-top,-total"])
def test_pages_are_the_listing_in_its_order(
    client: httpx.Client, watched: WatchedTable, limit: int, order: str | None
) -> None:
    params = {"limit": limit} | ({} if order is None else {"order": order})
    rows = [row for page in pages(client, **params) for row in page["rows"]]
    assert {row["name"]: (row["total"], row["top"]) for row in rows} == watched.live()
    assert len(rows) == len(watched.live())

    def text(name: Any) -> tuple[bool, bytes]:
        return (name is not None, (name or "").encode())

    def place(row: dict[str, Any]) -> list[Any]:
        return [text(row[c]) if c == "name" else row[c] for c, _ in columns]

    columns = [(c.removeprefix("-"), c.startswith("-")) for c in (order or "name").split(",")]
    expected = sorted(rows, key=lambda row: text(row["name"]))
    for column, descending in reversed(columns):
        expected.sort(
            key=lambda row, c=column: text(row[c]) if c == "name" else row[c],  # type: ignore[misc]
            reverse=descending,
        )
    assert [place(row) for row in rows] == [place(row) for row in expected]


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        (["total>=3"], lambda n, t, p: t >= 3),
        (["total<3", "top>0"], lambda n, t, p: t < 3 and p > 0),
        (["name=a"], lambda n, t, p: n == "a"),
        (["name!=a"], lambda n, t, p: n is not None and n != "a"),
        (["name is null"], lambda n, t, p: n is None),
        (["name is not null"], lambda n, t, p: n is not None),
        (["name^=z"], lambda n, t, p: n is not None and n.startswith("z")),
        (["name="], lambda n, t, p: n == ""),
        (["name<b"], lambda n, t, p: n is not None and n < "b"),
        (["name=c/d' OR '1'='1"], lambda n, t, p: False),
    ],
)
def test_conditions_hold(
    client: httpx.Client, watched: WatchedTable, where: list[str], holds: Any
) -> None:
    expected = {n: v for n, v in watched.live().items() if holds(n, *v)}
    assert shown(client.get(RESULTS, params={"where": where})) == expected


def test_what_cannot_be_asked_is_refused_with_its_parameter(
    client: httpx.Client, watched: WatchedTable
) -> None:
    assert watched.newest
    for params, code in (
        ({"where": "nope=1"}, "column-unknown"),
        ({"where": "total>=many"}, "parameter-invalid"),
        ({"where": "total^=1"}, "parameter-invalid"),
        ({"where": "1=1; DROP TABLE rows"}, "parameter-invalid"),
        ({"order": "total desc"}, "parameter-invalid"),
        ({"order": "rowid"}, "column-unknown"),
        ({"limit": 10_001}, "parameter-invalid"),
        ({"as_of": "yesterday"}, "parameter-invalid"),
        ({"as_of": "epoch:-1"}, "parameter-invalid"),
        ({"cursor": "rubbish"}, "cursor-invalid"),
        ({"cursor": "\u00fc"}, "cursor-invalid"),
    ):
        problem(client.get(RESULTS, params=params), 422, code)
    problem(client.get(RESULTS, params={"as_of": "epoch:999"}), 404, "epoch-unknown")
    problem(client.get(RESULTS, headers={"Accept": "image/png"}), 406, "accept-unsupported")
    cursor = client.get(RESULTS, params={"limit": 1}).json()["next_cursor"]
    other = client.get(RESULTS, params={"limit": 1, "order": "top", "cursor": cursor})
    problem(other, 422, "cursor-invalid")


def test_rows_come_as_json_lines_and_csv(client: httpx.Client, watched: WatchedTable) -> None:
    lines = client.get(RESULTS, headers={"Accept": "application/x-ndjson"})
    rows = [json.loads(line) for line in lines.text.splitlines()]
    assert {row["name"]: (row["total"], row["top"]) for row in rows} == watched.live()
    table = client.get(RESULTS, headers={"Accept": "text/csv;q=1, application/json;q=0.5"})
    read = list(csv.DictReader(io.StringIO(table.text, newline="")))
    # CSV readers do not tell NULL from an empty text; the file does, by quotes.
    expected = sorted((n or "", str(t), str(p)) for n, (t, p) in watched.live().items())
    assert sorted((row["name"], row["total"], row["top"]) for row in read) == expected
    first = client.get(RESULTS, params={"limit": 3}, headers={"Accept": "text/csv"})
    link = first.headers["link"].split(">")[0].lstrip("<")
    assert len(client.get(link, headers={"Accept": "text/csv"}).text.splitlines()) == 4


@pytest.mark.parametrize("epoch", [0, 1, 7, 19, 20, 21])
def test_the_past_is_as_it_was(client: httpx.Client, watched: WatchedTable, epoch: int) -> None:
    assert shown(client.get(RESULTS, params={"as_of": f"epoch:{epoch}"})) == watched.live(epoch)
    listed = [
        row["name"]
        for page in pages(client, as_of=f"epoch:{epoch}", limit=2, order="-total")
        for row in page["rows"]
    ]
    assert sorted(map(str, listed)) == sorted(map(str, watched.live(epoch)))
    answer = client.get(f"{RESULTS}/a", params={"as_of": f"epoch:{epoch}"})
    assert answer.status_code == (200 if "a" in watched.live(epoch) else 404)


def test_a_service_that_starts_anew_gives_the_same_past_from_the_table(tmp_path: Path) -> None:
    served = Served.start(tmp_path)
    watched = WatchedTable(served)
    for number in range(1, 9):
        watched.write({"a": (number,), f"n{number}": (number,)})
    watched.seen()
    assert served.stop() == 0
    index = next((tmp_path / "service" / "jobs" / "items" / "index").glob("*.sqlite"))
    index.write_bytes(b"rubbish")  # a cache may be damaged; then it is made anew
    served = watched.served = Served.start(tmp_path)
    try:
        watched.seen()
        with served.client() as client:
            for epoch in (8, 3, 0):
                asked = client.get(RESULTS, params={"as_of": f"epoch:{epoch}"})
                assert shown(asked) == watched.live(epoch)
            watched.table.forget(until=4)
            gone = client.get(RESULTS, params={"as_of": "epoch:2"})
            assert problem(gone, 410, "history-gone")["oldest"] == 4
    finally:
        served.stop()


@pytest.mark.slow
def test_pages_of_a_listing_are_of_one_epoch_while_others_are_committed(tmp_path: Path) -> None:
    with Served.start(tmp_path) as served:
        watched = WatchedTable(served)
        watched.write({f"g{number:03}": (number,) for number in range(40)})
        watched.seen()
        ended = threading.Event()

        def write() -> None:
            chance = random.Random(3)
            while not ended.is_set():
                watched.write({f"g{n:03}": (chance.randint(0, 99),) for n in range(40) if n % 3})

        writer = threading.Thread(target=write)
        with served.client() as client:
            writer.start()
            try:
                for _ in range(6):
                    found = list(pages(client, limit=7, order="-total"))
                    (epoch,) = {page["epoch"] for page in found}
                    rows = [row for page in found for row in page["rows"]]
                    output = {row["name"]: (row["total"], row["top"]) for row in rows}
                    assert output == watched.live(epoch)
            finally:
                ended.set()
                writer.join()


def test_who_has_written_reads_what_was_written(served: Served, watched: WatchedTable) -> None:
    with served.client() as client:
        waiting = watched.newest + 1
        answers: list[httpx.Response] = []
        params = {"min_epoch": waiting, "wait": 20}
        asking = threading.Thread(
            target=lambda: answers.append(client.get(f"{RESULTS}/a", params=params))
        )
        asking.start()
        watched.write({**dict.fromkeys(NAMES, (1,)), "a": (77,)})
        asking.join()
        assert answers[0].json() == {"epoch": waiting, "row": {"name": "a", "total": 77, "top": 77}}
        offset = 10 * waiting - 1  # the last record that this epoch has counted
        for text in (f"0:{offset}", f"t/0:{offset}"):
            read = client.get(f"{RESULTS}/a", params={"after_offset": text, "wait": 0})
            assert read.json()["epoch"] == waiting
        late = client.get(RESULTS, params={"after_offset": f"0:{offset + 1}", "wait": 0.1})
        problem(late, 412, "epoch-not-reached")
        for text in ("x", "u/0:1", "0", "-1:0", "0:1:2"):
            problem(client.get(RESULTS, params={"after_offset": text}), 422, "parameter-invalid")
        late = client.get(RESULTS, params={"min_epoch": waiting + 1, "wait": 0.1})
        assert problem(late, 412, "epoch-not-reached")["newest"] == waiting


def test_a_column_that_is_asked_by_gets_an_index(
    client: httpx.Client, watched: WatchedTable
) -> None:
    (file,) = (watched.served.data / "service" / "jobs" / "items" / "index").glob("*.sqlite")
    expected = shown(client.get(RESULTS, params={"order": "-top"}))

    def plan() -> str:
        with sqlite3.connect(file) as index:
            return str(
                index.execute("EXPLAIN QUERY PLAN SELECT * FROM rows ORDER BY c2").fetchall()
            )

    eventually(lambda: "by_c2" in plan())
    assert shown(client.get(RESULTS, params={"order": "-top"})) == expected
    low = client.get(RESULTS, params={"order": "top,-name", "where": "top<=1"})
    assert shown(low) == {n: v for n, v in watched.live().items() if v[1] <= 1}


def test_a_job_without_epochs_says_so(client: httpx.Client) -> None:
    from tests.support.service.served import SPEC

    client.put("/v1/jobs/unborn", content=SPEC)
    problem(client.get("/v1/jobs/unborn/results"), 409, "job-has-no-table")
    problem(client.get("/v1/jobs/unborn/results/a"), 409, "job-has-no-table")
    problem(client.get("/v1/jobs/nobody/results"), 404, "job-unknown")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "columns", "key", "address"),
    [
        ("SELECT SUM(v) AS total, MAX(v) AS top FROM t", {"v": INT}, (), "{}"),
        (
            "SELECT d, b, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY d, b",
            {"d": SqlType.parse("DECIMAL(38, 3)"), "b": SqlType.parse("BOOLEAN"), "v": INT},
            (-(10**30) + 1, True),
            '{"d": "-999999999999999999999999999.999", "b": true}',
        ),
        (
            "SELECT x, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY x",
            {"x": SqlType.parse("TIMESTAMP(3)"), "v": INT},
            (1_700_000_000_123_000,),
            "2023-11-14 22:13:20.123",
        ),
        (
            "SELECT x, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY x",
            {"x": SqlType.parse("BIGINT"), "v": INT},
            (2**62,),
            str(2**62),
        ),
        (
            "SELECT SUM(v) AS total, MAX(v) AS top FROM t GROUP BY h",
            {"h": STRING, "v": INT},
            ("k",),
            "k",
        ),
    ],
    ids=["no group", "decimal and boolean", "timestamp", "beyond 2^53", "hidden"],
)
def test_keys_of_every_shape(
    tmp_path: Path, query: str, columns: dict[str, object], key: Any, address: str
) -> None:
    with Served.start(tmp_path) as served:
        watched = WatchedTable(served, query, columns)
        watched.table.epoch({key: (3, 4)})
        watched.seen()
        with served.client() as client:
            answer = client.get(f"{RESULTS}/{quote(address, safe='')}")
            assert answer.status_code == 200, answer.text
            row = answer.json()["row"]
            assert (row["total"], row["top"]) == (7, 4)
            if "x" in row and isinstance(key[0], int) and key[0] > 2**61:
                assert row["x"] == str(key[0])
            assert client.get(RESULTS).json()["rows"] == [row]


def test_an_epoch_is_seen_soon_after_it_is_committed(tmp_path: Path) -> None:
    with Served.start(tmp_path) as served:
        watched = WatchedTable(served)
        watched.write({"a": (1,)})
        watched.seen()
        with served.client() as client:
            for value in range(2, 6):
                epoch = watched.write({"a": (value,)})
                output = client.get(f"{RESULTS}/a", params={"min_epoch": epoch, "wait": 2})
                assert output.json()["row"]["total"] == value
        assert eventually(lambda: served.job("items")["rates"] is not None)
