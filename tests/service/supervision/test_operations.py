"""Operations that need no broker, and what is refused before any operation begins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from schemas.limits import RESENT_AT_ONCE_MAX
from schemas.spec.file import load_spec
from tests.support.service.served import Served, eventually
from tests.support.service.tables import WatchedTable, shown

JOB = "/v1/jobs/items"


@pytest.fixture(scope="module")
def watched(served: Served) -> Iterator[WatchedTable]:
    watched = WatchedTable(served)
    watched.write({"a": (1, 5), "b": (2,)}, {"a": (1,), "c": (7,)})
    watched.seen()
    yield watched


def ended(client: httpx.Client, accepted: httpx.Response) -> dict[str, Any]:
    assert accepted.status_code == 202, accepted.text
    place = accepted.headers["location"]
    found: dict[str, Any] = eventually(
        lambda: (output := client.get(place).json())["state"] in ("DONE", "FAILED") and output
    )
    return found


def test_a_clone_is_a_job_of_its_own_with_results_changes_and_an_end(
    watched: WatchedTable, client: httpx.Client
) -> None:
    asked = client.post(
        f"{JOB}/clone", json={"name": "trial", "to": 1}, headers={"Idempotency-Key": "k"}
    )
    done = ended(client, asked)
    assert (done["state"], done["asked_by"]) == ("DONE", "local"), done
    assert done["result"] == {"job": "trial", "of": "items", "cloned": 1, "epoch": 1, "groups": 2}
    job = client.get("/v1/jobs/trial").json()
    assert (job["actual"], job["desired"], job["revision"]) == ("STOPPED", "STOPPED", 1)
    assert "sink" not in job["spec"]
    eventually(lambda: client.get("/v1/jobs/trial").json()["epoch"] == 1)
    assert shown(client.get("/v1/jobs/trial/results")) == watched.live(1)
    changes = client.get(
        "/v1/jobs/trial/changes", params={"since": 0}, headers={"Accept": "application/json"}
    ).json()["changes"]
    assert [change["op"] for change in changes] == ["+I", "+I"]
    again = client.post(f"{JOB}/clone", json={"name": "x"}, headers={"Idempotency-Key": "k"})
    assert again.json()["id"] == done["id"]
    other = client.post(f"{JOB}/audit", headers={"Idempotency-Key": "k"})
    assert (other.status_code, other.json()["code"]) == (422, "parameter-invalid")
    assert client.delete("/v1/jobs/trial?data=drop").status_code == 204
    assert shown(client.get(f"{JOB}/results")) == watched.live()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": "items"}, 409, "job-exists"),
        ({"name": "../x"}, 422, "body-invalid"),
        ({"name": "Items"}, 422, "body-invalid"),
        ({"name": "y", "to": "../../z"}, 422, "body-invalid"),
        ({}, 422, "body-invalid"),
        ({"name": "y", "also": 1}, 422, "body-invalid"),
        ({"name": "y", "spec": {"query": 1}}, 422, "spec-invalid"),
    ],
)
def test_a_clone_that_cannot_be_is_refused_at_once(
    watched: WatchedTable, client: httpx.Client, body: Any, status: int, code: str
) -> None:
    refused = client.post(f"{JOB}/clone", json=body)
    assert (refused.status_code, refused.json()["code"]) == (status, code), refused.text


def test_a_clone_keeps_the_query_of_the_state(watched: WatchedTable, client: httpx.Client) -> None:
    spec = load_spec(watched.table.place.spec).document() | {"name": "y"}
    spec["query"] = "SELECT name, SUM(v) AS total FROM t GROUP BY name"
    refused = client.post(f"{JOB}/clone", json={"name": "y", "spec": spec})
    assert (refused.status_code, refused.json()["code"]) == (409, "query-fixed")
    assert refused.json()["errors"][0]["path"] == "spec.query"


def test_a_clone_of_what_is_gone_fails_with_the_reason(
    watched: WatchedTable, client: httpx.Client
) -> None:
    done = ended(client, client.post(f"{JOB}/clone", json={"name": "y", "to": "never"}))
    assert (done["state"], done["result"]) == ("FAILED", None)
    assert "no savepoint 'never'" in done["reason"]
    assert client.get("/v1/jobs/y").status_code == 404


def test_a_message_that_is_not_in_quarantine_is_not_sent(
    watched: WatchedTable, client: httpx.Client
) -> None:
    for identity in ("7-t-0-12", "nonsense", "7-..-0-12"):
        refused = client.post(f"{JOB}/quarantine/{identity}/replay", json={"message": "{}"})
        assert refused.status_code == 404, refused.text
    several = client.post(f"{JOB}/quarantine/replay", json={"ids": ["7-t-0-12", "nonsense"]})
    assert several.status_code == 404
    for ids in ([], ["7-t-0-12"] * (RESENT_AT_ONCE_MAX + 1)):
        refused = client.post(f"{JOB}/quarantine/replay", json={"ids": ids})
        assert (refused.status_code, refused.json()["code"]) == (422, "body-invalid")
    both = {"message": "{}", "message_base64": "e30="}
    refused = client.post(f"{JOB}/quarantine/7-t-0-12/replay", json=both)
    assert (refused.status_code, refused.json()["code"]) == (422, "body-invalid")


def test_what_a_clone_needs_lies_in_no_place_of_others(served: Served, data: Path) -> None:
    left = list((served.data / "service" / "operations").glob("*"))
    assert left == []


def test_offsets_are_moved_at_their_epoch_of_a_stopped_job_only(
    watched: WatchedTable, client: httpx.Client
) -> None:
    output = client.get(f"{JOB}/offsets")
    assert output.headers["etag"] == f'"{watched.newest}"'
    assert (output.json()["topics"]["t"]["0"]["next"], output.json()["moved"]) == (20, None)
    body = {"offsets": {"t": {"0": 7}}}
    stale = client.patch(f"{JOB}/offsets", json=body, headers={"If-Match": '"1"'})
    assert (stale.status_code, stale.json()["code"]) == (412, "epoch-moved")
    for wrong, path in (
        ({"offsets": {"u": {"0": 7}}}, "body.offsets.u"),
        ({"offsets": {"t": {"x": 7}}}, "body.offsets.t.x"),
        ({"offsets": {"t": {"0": -1}}}, "body.offsets.t.0"),
        ({"offsets": {}}, "body.offsets"),
    ):
        refused = client.patch(f"{JOB}/offsets", json=wrong)
        assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, path)
    client.post(f"{JOB}/start")
    for refused in (client.patch(f"{JOB}/offsets", json=body), client.delete(f"{JOB}/offsets")):
        assert (refused.status_code, refused.json()["code"]) == (409, "job-not-stopped")
