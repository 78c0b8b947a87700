"""Jobs over HTTP: created, changed, refused with the place of every mistake, deleted."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from jobs.reading.version import TableVersion
from schemas.spec.connections import load_connections
from schemas.spec.watermark import TimeDefaults
from service.settings import Settings
from tests.support.service.served import SPEC, Served, problem
from tests.support.service.tables import WatchedTable


def test_a_job_is_created_stopped_and_the_same_again_changes_nothing(client: httpx.Client) -> None:
    first = client.put("/v1/jobs/one", content=SPEC)
    assert first.status_code == 201
    assert first.headers["etag"] == '"1"'
    assert first.headers["location"] == "/v1/jobs/one"
    assert first.json()["desired"] == "STOPPED"
    assert first.json()["actual"] == "CREATED"
    again = client.put("/v1/jobs/one", content=SPEC)
    assert (again.status_code, again.headers["etag"]) == (200, '"1"')
    assert client.get("/v1/jobs/one").json() == again.json()


def test_a_spec_as_json_is_the_same_spec(client: httpx.Client) -> None:
    written = client.put("/v1/jobs/json", content=SPEC).json()
    again = client.put("/v1/jobs/json", json=written["spec"])
    assert (again.status_code, again.json()["revision"]) == (200, 1)


def test_columns_in_another_order_are_the_same_spec(client: httpx.Client) -> None:
    first = client.put("/v1/jobs/ordered", content=SPEC).json()
    turned = SPEC.replace("{name: STRING, v: INT}", "{v: INT, name: STRING}")
    assert turned != SPEC
    again = client.put("/v1/jobs/ordered", content=turned)
    assert (again.status_code, again.json()) == (200, first)
    other = SPEC.replace("v: INT", "v: BIGINT")
    assert client.put("/v1/jobs/ordered", content=other).json()["revision"] == 2


def test_conditions_are_held_against_the_revision(client: httpx.Client) -> None:
    client.put("/v1/jobs/two", content=SPEC)
    created = client.put("/v1/jobs/two", content=SPEC, headers={"If-None-Match": "*"})
    problem(created, 412, "job-exists")
    changed = SPEC + "retention: 1d\n"
    stale = client.put("/v1/jobs/two", content=changed, headers={"If-Match": '"7"'})
    problem(stale, 412, "revision-mismatch")
    right = client.put("/v1/jobs/two", content=changed, headers={"If-Match": '"1"'})
    assert (right.status_code, right.headers["etag"]) == (200, '"2"')
    absent = client.put("/v1/jobs/absent", content=SPEC, headers={"If-Match": "*"})
    problem(absent, 412, "revision-mismatch")


def test_every_mistake_of_a_spec_is_told_with_its_place(client: httpx.Client) -> None:
    body = "source: {topic: t, conection: x}\ncolumns: {v: INTT}\nquery: SELECT nope FROM t\n"
    output = problem(client.put("/v1/jobs/bad", content=body), 422, "spec-invalid")
    places = {(error["path"], error["line"]) for error in output["errors"]}
    assert ("source", 1) in places
    assert ("columns.v", 2) in places
    query = SPEC.replace("SUM(v)", "SUM(w)")
    output = problem(
        client.post("/v1/jobs:validate", content="name: x\n" + query), 422, "spec-invalid"
    )
    wrong = output["errors"][0]
    assert (wrong["path"], wrong["line"]) == ("query", 4)
    assert query.splitlines()[2][wrong["column"] - 1 :].startswith("w)")
    assert client.get("/v1/jobs/bad").status_code == 404


def test_a_valid_spec_is_described_and_not_kept(client: httpx.Client) -> None:
    output = client.post("/v1/jobs:validate", content="name: dry\n" + SPEC)
    assert output.status_code == 200
    assert output.json()["columns"][1] == {"name": "total", "type": "INT"}
    assert client.get("/v1/jobs/dry").status_code == 404


VIEWED = """\
source: {topic: t}
columns: {name: STRING, v: INT}
views:
  sums: {query: "SELECT name, SUM(v) AS total FROM t GROUP BY name"}
  whole: {query: SELECT COUNT(*) AS n FROM t, sink: {topic: all-of-t}}
"""


def test_the_columns_and_the_operators_of_each_view_are_described(client: httpx.Client) -> None:
    output = client.post("/v1/jobs:validate", content="name: many\n" + VIEWED).json()
    sums = [{"name": "name", "type": "STRING"}, {"name": "total", "type": "INT"}]
    assert output["views"] == {"sums": sums, "whole": [{"name": "n", "type": "BIGINT"}]}
    assert output["columns"] == []
    assert client.put("/v1/jobs/many", content=VIEWED).status_code == 201
    plan = client.get("/v1/jobs/many/plan").json()
    assert plan["nodes"] == []
    sinks = {view: nodes[-1]["id"] for view, nodes in plan["views"].items()}
    assert sinks == {"sums": "table", "whole": "sink"}
    for view, nodes in plan["views"].items():
        own = client.get(f"/v1/jobs/many/views/{view}/plan").json()
        assert (own["nodes"], own["views"]) == (nodes, {})
    problem(client.get("/v1/jobs/many/views/other/plan"), 404, "job-unknown")


WINDOWED = """\
source: {topic: t}
columns: {name: STRING, at: TIMESTAMP(3)}
query: SELECT name, COUNT(*) AS n FROM t GROUP BY name, TUMBLE(at, INTERVAL '1' MINUTE)
watermark: {time: {column: at}}
emit: final
"""


def test_final_windows_without_idle_after_have_a_note_in_the_api_and_the_console(
    client: httpx.Client,
) -> None:
    output = client.post("/v1/jobs:validate", content="name: w\n" + WINDOWED).json()
    (note,) = output["notes"]
    assert (note["path"], note["line"]) == ("emit", 6)
    assert "one that is empty or silent holds all of them" in note["message"]
    assert client.put("/v1/jobs/windowed", content=WINDOWED).status_code == 201
    assert "windows wait for every partition" in client.get("/jobs/windowed").text
    decided = WINDOWED.replace("{column: at}", "{column: at}, idle_after: never")
    assert client.put("/v1/jobs/windowed", content=decided).status_code == 200
    assert "windows wait for every partition" not in client.get("/jobs/windowed").text


def test_a_service_with_idle_after_decides_for_jobs_that_do_not(tmp_path: Path) -> None:
    with Served.start(tmp_path, "--idle-after", "45s") as served, served.client() as client:
        output = client.post("/v1/jobs:validate", content="name: w\n" + WINDOWED).json()
        assert output["notes"] == []
        assert "idle_after" not in output["spec"]["watermark"]
        assert client.put("/v1/jobs/windowed", content=WINDOWED).status_code == 201
        nodes = client.get("/v1/jobs/windowed/plan").json()["nodes"]
        page = client.get("/jobs/windowed").text
    (watermark,) = (node for node in nodes if node["id"] == "watermark")
    assert watermark["attributes"]["idle_after"] == "45s"
    assert "windows wait for every partition" not in page
    connections = load_connections(None, "127.0.0.1:9")
    settings = Settings(tmp_path, connections, time_defaults=TimeDefaults(45_000, 1_500))
    assert settings.job_arguments[-4:] == ["--idle-after", "45s", "--emit-every", "1500ms"]
    assert "--idle-after" not in settings.run_arguments  # which other commands take too


def test_only_jobs_that_may_share_a_driver_are_told_so() -> None:
    settings = Settings(Path("data"), load_connections(None, "127.0.0.1:9"), jobs_per_driver=3)
    assert settings.job_arguments[-2:] == ["--jobs-per-driver", "3"]
    assert settings.run_arguments == replace(settings, jobs_per_driver=1).job_arguments


@pytest.mark.parametrize("name", ["UP", "a" * 41, "%2e%2e", "a b", "1a", "a%00", "..%2f..%2fetc"])
def test_names_that_are_none_are_refused(client: httpx.Client, name: str) -> None:
    response = client.put(f"/v1/jobs/{name}", content=SPEC)
    assert response.status_code in (404, 422)
    assert response.headers["content-type"] == "application/problem+json"


def test_a_body_with_another_name_is_refused(client: httpx.Client) -> None:
    output = problem(client.put("/v1/jobs/a", content="name: b\n" + SPEC), 422, "spec-invalid")
    assert (output["errors"][0]["path"], output["errors"][0]["line"]) == ("name", 1)


def test_what_belongs_to_windows_is_refused_without_them(client: httpx.Client) -> None:
    output = problem(client.put("/v1/jobs/a", content=SPEC + "emit: final\n"), 422, "spec-invalid")
    assert output["errors"][0]["path"] == "emit"


def test_an_address_of_a_broker_is_no_connection(client: httpx.Client) -> None:
    body = SPEC.replace("{topic: t}", "{topic: t, connection: evil}")
    output = problem(client.put("/v1/jobs/a", content=body), 422, "spec-invalid")
    assert output["errors"][0]["path"] == "source.connection"


@pytest.mark.parametrize(
    "body", ["", "[", "x" * 300_000, "{" * 5_000, "a: &a [*a]", "!!python/x 1"]
)
def test_bodies_that_are_no_spec_are_refused_with_a_reason(client: httpx.Client, body: str) -> None:
    output = problem(client.put("/v1/jobs/a", content=body), 422, "spec-invalid")
    assert output["errors"]


def test_a_body_beyond_all_bounds_is_not_read(client: httpx.Client) -> None:
    problem(client.put("/v1/jobs/a", content=b" " * 2_000_000), 413, "body-too-large")

    def endless() -> Any:
        for _ in range(200):
            yield b" " * 10_000

    problem(client.put("/v1/jobs/a", content=endless()), 413, "body-too-large")


def test_jobs_are_listed_in_pages(client: httpx.Client) -> None:
    for name in ("p1", "p2", "p3"):
        client.put(f"/v1/jobs/{name}", content=SPEC)
    listed, cursor = [], "p"
    while cursor is not None:
        page = client.get("/v1/jobs", params={"limit": 2, "cursor": cursor}).json()
        listed += [job["name"] for job in page["jobs"]]
        cursor = page["next_cursor"]
    assert listed[:3] == ["p1", "p2", "p3"]
    assert client.get("/v1/jobs", params={"state": "RUNNING"}).json()["jobs"] == []


def test_what_becomes_of_the_data_has_to_be_said(client: httpx.Client) -> None:
    client.put("/v1/jobs/gone", content=SPEC)
    problem(client.delete("/v1/jobs/gone"), 422, "parameter-invalid")
    stale = client.delete("/v1/jobs/gone?data=drop", headers={"If-Match": '"9"'})
    problem(stale, 412, "revision-mismatch")
    assert client.delete("/v1/jobs/gone?data=drop").status_code == 204
    problem(client.get("/v1/jobs/gone"), 404, "job-unknown")
    problem(client.delete("/v1/jobs/gone?data=drop"), 404, "job-unknown")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that several data directories share."""
    monkeypatch.setenv("RETALLY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("way", ["delete", "approve"])
def test_a_job_without_its_data_has_no_hot_state_and_leaves_those_of_other_tables_alone(
    way: str, tmp_path: Path, cache: Path
) -> None:
    with Served.start(tmp_path / "data") as served:
        watched = WatchedTable(served)
        place = watched.table.place
        shutil.copytree(place.own_table, place.shadow.own_table)
        for of in (place, place.shadow):
            of.view_specs.mkdir()
            (of.view_specs / "top.yaml").write_text(place.spec.read_text())
        table_id = TableVersion(place.own_table).id
        own = [
            of.at_view(view).hot_state(table_id)
            for of in (place, place.shadow)
            for view in ("", "top")
        ]
        other = place.hot_state("of another table")
        assert len({*own, other}) == 5
        for directory in (*own, other):
            directory.mkdir(parents=True)
        with served.client() as client:
            if way == "delete":
                assert client.delete("/v1/jobs/items?data=drop").status_code == 204
            else:
                spec = SPEC.replace("SUM(v)", "MIN(v)")
                assert client.put("/v1/jobs/items?replace=true", content=spec).status_code == 200
                assert client.post("/v1/jobs/items/approve?state=drop").status_code == 200
        assert [path.name for path in place.cache.iterdir()] == [other.name]


@pytest.mark.parametrize("damage", ["log", "checkpoint", "URL"])
def test_a_job_whose_table_is_damaged_is_deleted(damage: str, tmp_path: Path, cache: Path) -> None:
    with Served.start(tmp_path / "data") as served:
        place = WatchedTable(served).table.place
        log = place.own_table / "_delta_log"
        if damage == "log":
            for entry in log.glob("*.json"):
                entry.write_text("nonsense")
        elif damage == "checkpoint":
            (log / "_last_checkpoint").write_text('{"version": 0, "size": 3}')
            (log / f"{0:020d}.checkpoint.parquet").write_bytes(b"PAR1 nonsense PAR1")
        else:
            place.pointer.write_text("nonsense")
        with served.client() as client:
            assert client.delete("/v1/jobs/items?data=drop").status_code == 204
        assert not place.home.exists()


def test_what_is_not_there_is_a_problem_too(client: httpx.Client) -> None:
    problem(client.get("/v1/nothing"), 404, "not-found")
    problem(client.patch("/v1/jobs"), 405, "method-not-allowed")
    problem(client.post("/v1/jobs/absent/start"), 404, "job-unknown")
    client.put("/v1/jobs/verbs", content=SPEC)
    problem(client.post("/v1/jobs/verbs/explode"), 404, "not-found")
    wrong = client.post("/v1/jobs/verbs")
    problem(wrong, 405, "method-not-allowed")
    assert wrong.headers["allow"] == "DELETE, GET, HEAD, OPTIONS, PUT"
    problem(client.get("/v1/jobs?limit=0"), 422, "parameter-invalid")
