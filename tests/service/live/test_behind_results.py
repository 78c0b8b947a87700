"""What lies behind results, over HTTP: explain, history, differences, quarantine, savepoints."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import msgspec
import pytest

from jobs.edge.rows.late_rows import LateRow
from jobs.edge.table.epoch_files import Reject
from jobs.edge.table.file_writer import file_name, write_file
from jobs.reading.parts import LATE, QUARANTINE
from tests.support.service.followers import Event, folded
from tests.support.service.served import Served, eventually, problem
from tests.support.service.tables import WatchedTable

JOB = "/v1/jobs/items"
NAMES = [f"g{number}" for number in range(8)]


@pytest.fixture(scope="module")
def watched(served: Served) -> WatchedTable:
    watched = WatchedTable(served)
    chance = random.Random(9)
    for _ in range(15):
        names = chance.sample(NAMES, 4)
        watched.write({n: tuple(chance.randint(-5, 5) for _ in range(3)) for n in names})
    watched.write({"g0": (4, 4, -1), "g1": (2,)})
    late = [
        LateRow(
            topic="t",
            partition=0,
            offset=3,
            weight=1,
            time_ms=7,
            row='{"v": 9}',
            became=None,
            whole=True,
        ),
        LateRow(
            topic="t",
            partition=1,
            offset=4,
            weight=-1,
            time_ms=8,
            row="{}",
            became='{"v": 1}',
            whole=True,
        ),
    ]
    place, table = watched.table.place.table, watched.table
    rows = table.layout.late_table(watched.newest, 900, late, [("g0",), ("g1",)])
    name = file_name(LATE, watched.newest, uuid4().hex, "w")
    table.table.commit([write_file(place, name, rows)], uuid=uuid4().hex, what="late")
    watched.seen()
    return watched


@pytest.fixture
def client(watched: WatchedTable) -> Iterator[httpx.Client]:
    with watched.served.client() as client:
        yield client


@pytest.mark.parametrize("name", ["g0", "g1", "g5"])
def test_the_explanation_is_that_of_the_command(
    client: httpx.Client, watched: WatchedTable, name: str
) -> None:
    answer = client.get(f"{JOB}/results/{name}/explain")
    assert answer.json() == msgspec.to_builtins(watched.table.reader().explain((name,)))
    assert answer.headers["x-epoch"] == str(watched.newest)
    assert len(answer.json()["late"]) == (name in ("g0", "g1"))


def test_an_explanation_shows_what_is_behind_the_values(client: httpx.Client) -> None:
    output = client.get(f"{JOB}/results/g0/explain").json()
    assert output["row"] == {"name": "g0", "total": 7, "top": 4}
    (argument,) = output["arguments"]
    assert argument["multiset"] == [
        {"value": -1, "multiplicity": 1},
        {"value": 4, "multiplicity": 2},
    ]
    assert output["epochs"][-1]["offsets"] == {"t": {"0": [150, 160]}}


def test_a_group_that_never_was_has_no_explanation(client: httpx.Client) -> None:
    problem(client.get(f"{JOB}/results/nobody/explain"), 404, "group-unknown")
    assert client.get(f"{JOB}/results/nobody/history").json()["changes"] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_history_of_a_group_is_its_part_of_the_changelog(
    client: httpx.Client, watched: WatchedTable, name: str
) -> None:
    output = client.get(f"{JOB}/results/{name}/history").json()
    assert output["complete"]
    rows = folded([Event("change", None, change) for change in output["changes"]])
    live = watched.live()
    assert rows == ({name: live[name]} if name in live else {})
    newest = client.get(f"{JOB}/results/{name}/history", params={"limit": 2}).json()
    assert newest["changes"] == output["changes"][-2:]


@pytest.mark.parametrize(("first", "last"), [(0, 16), (3, 9), (9, 3), (5, 5), (15, None)])
def test_a_difference_leads_from_one_epoch_to_the_other(
    client: httpx.Client, watched: WatchedTable, first: int, last: int | None
) -> None:
    params: dict[str, Any] = {"from": first, "limit": 3} | ({} if last is None else {"to": last})
    rows, found = dict(watched.live(first)), []
    while True:
        page = client.get(f"{JOB}/diff", params=params).json()
        found += page["rows"]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]
    for change in found:
        name = change["key"]["name"]
        before, after = (
            None if each is None else (each["total"], each["top"])
            for each in (change["before"], change["after"])
        )
        assert rows.pop(name, None) == before
        assert before != after
        if after is not None:
            rows[name] = after
    assert rows == watched.live(watched.newest if last is None else last)


def test_a_difference_with_what_is_not_there_is_refused(client: httpx.Client) -> None:
    problem(client.get(f"{JOB}/diff?from=0&to=99"), 404, "epoch-unknown")
    problem(client.get(f"{JOB}/diff?from=99"), 404, "epoch-unknown")
    problem(client.get(f"{JOB}/diff"), 422, "parameter-invalid")


def test_savepoints_are_made_listed_and_let_go(client: httpx.Client, watched: WatchedTable) -> None:
    made = client.post(f"{JOB}/savepoints", json={"name": "before"})
    assert made.status_code == 201, made.text
    assert made.json()["epoch"] == watched.newest
    again = client.post(f"{JOB}/savepoints", json={"name": "before"})
    problem(again, 409, "savepoint-exists")
    for name in ("../x", "-v", "7", "a b", "x" * 64, ""):
        problem(client.post(f"{JOB}/savepoints", json={"name": name}), 422, "body-invalid")
    problem(client.post(f"{JOB}/savepoints", content=b"[" * 9_999), 422, "body-invalid")
    (listed,) = client.get(f"{JOB}/savepoints").json()["savepoints"]
    assert (listed["name"], listed["offsets"]) == ("before", made.json()["offsets"])
    assert client.delete(f"{JOB}/savepoints/before").status_code == 204
    problem(client.delete(f"{JOB}/savepoints/before"), 404, "savepoint-unknown")


@pytest.mark.slow
def test_a_rewind_that_cannot_be_is_an_operation_that_failed(
    client: httpx.Client, watched: WatchedTable
) -> None:
    asked = client.post(f"{JOB}/rewind", json={"to": 3}, headers={"Idempotency-Key": "one"})
    assert asked.status_code == 202
    again = client.post(f"{JOB}/rewind", json={"to": 3}, headers={"Idempotency-Key": "one"})
    assert again.json()["id"] == asked.json()["id"]
    place = asked.headers["location"]
    ended = eventually(
        lambda: (output := client.get(place).json())["state"] in ("DONE", "FAILED") and output, 60
    )
    assert ended["state"] == "FAILED"
    assert ended["reason"]
    assert ended in client.get(f"{JOB}/operations").json()["operations"]
    for to in ("--help", "", "a b", "../x"):
        problem(client.post(f"{JOB}/rewind", json={"to": to}), 422, "body-invalid")
    problem(client.get("/v1/operations/none"), 404, "operation-unknown")
    assert watched.newest == client.get(JOB).json()["epoch"]


def test_offsets_and_watermarks_are_those_of_the_newest_epoch(
    client: httpx.Client, watched: WatchedTable
) -> None:
    output = client.get(f"{JOB}/offsets").json()
    assert output["epoch"] == watched.newest
    assert output["topics"] == {"t": {"0": {"next": 10 * watched.newest, "end": None, "lag": None}}}
    marks = client.get(f"{JOB}/watermarks").json()
    assert (marks["epoch"], marks["combined"], marks["topics"]) == (watched.newest, None, {})


def test_metrics_are_text_that_prometheus_reads(
    client: httpx.Client, watched: WatchedTable
) -> None:
    text = client.get("/metrics").text
    assert f'retally_job_epoch{{job="items"}} {watched.newest}\n' in text
    assert 'retally_job_state{job="items",state="CREATED"} 1\n' in text
    assert 'retally_job_counted_total{job="items",what="quarantined"} ' in text
    assert 'retally_job_active{job="items"} 1\n' in text
    for line in text.splitlines():
        assert line.startswith("# ") or float(line.rpartition(" ")[2]) is not None


def test_the_quarantine_is_listed_with_reasons_and_kept_whole(tmp_path: Path) -> None:
    with Served.start(tmp_path) as served:
        watched = WatchedTable(served)
        raws = [b'{"bad": 1}', b"\xff\xfe", "ü".encode() * 1_000, None]
        rejects = [
            Reject("t", 0, offset, 1_000_000, "no", "$", raw, 0 if raw is None else len(raw))
            for offset, raw in enumerate(raws)
        ]
        table = watched.table
        for reject in rejects:
            rows = table.layout.quarantine_table(table_epoch := watched.newest + 1, [reject])
            name = file_name(QUARANTINE, table_epoch, uuid4().hex, "w")
            table.history.append({})
            table._commit("data", [write_file(table.place.table, name, rows)], 0)
        watched.seen()
        with served.client() as client:
            found: list[dict[str, Any]] = []
            cursor = None
            while True:
                params = {"limit": 3} | ({} if cursor is None else {"cursor": cursor})
                page = client.get(f"{JOB}/quarantine", params=params).json()
                found += page["messages"]
                cursor = page["next_cursor"]
                if cursor is None:
                    break
            assert [each["offset"] for each in found] == [0, 1, 2, 3]
            assert found[0]["raw"] == '{"bad": 1}'
            assert found[1]["raw_base64"] == "//4="
            assert found[2]["cut"] and len(found[2]["raw"]) == 512
            assert found[3]["raw"] is None
            whole = client.get(f"{JOB}/quarantine/{found[2]['id']}").json()
            assert (whole["raw"], whole["cut"]) == ("ü" * 1_000, False)
            for bad in ("x", "1-t-0-99", "..%2fx"):
                problem(client.get(f"{JOB}/quarantine/{bad}"), 404, "not-found")


def test_the_description_names_every_route_with_an_example(client: httpx.Client) -> None:
    output = client.get("/openapi.json").json()
    assert output["openapi"].startswith("3.")
    for path, methods in output["paths"].items():
        for method, route in methods.items():
            assert route["summary"], (method, path)
            done = [code for code in route["responses"] if code.startswith("2")]
            assert done, (method, path)
            if path.startswith("/v1/") and "204" not in done:
                content = route["responses"][done[-1]].get("content", {})
                assert any("example" in media for media in content.values()), (method, path)
