"""A job that has only views: its quarantine, its operations, and listings of several views."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from schemas.limits import CONSOLE_RAW_BYTES
from tests.support.console.viewed import VIEWED, put_only_views, refuse
from tests.support.service.served import Served, problem

JOB = f"/v1/jobs/{VIEWED}"
PAGES = f"/jobs/{VIEWED}"
VIEWS = {"least": [("bolt", 7), ("nut", 1)], "times": [("bolt", 1), ("nut", 2)]}  # and their rows
NEWEST = 4  # two epochs, the change to views, and the refused messages


def insert(v: object, name: str = "bolt") -> bytes:
    return json.dumps({"type": "INSERT", "data": [{"name": name, "v": v}]}).encode()


@pytest.fixture(scope="module")
def refused(served: Served) -> Iterator[dict[str, str]]:
    """The ids of a message that no view could decode, and of one that `least` alone refused."""
    put_only_views(served, VIEWED)
    shared = insert("x", "y" * CONSOLE_RAW_BYTES)
    yield refuse(served, VIEWED, {"": shared, "least": insert("7")})


def read_page(client: httpx.Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status, path
    return answer.text


# --- quarantine -----------------------------------------------------------------------------------


def test_each_view_has_pages_of_its_quarantine(
    client: httpx.Client, refused: dict[str, str]
) -> None:
    shared, own = refused[""], refused["least"]
    for address, view in ((PAGES, "least"), *((f"{PAGES}/views/{v}", v) for v in VIEWS)):
        base = f"{PAGES}/views/{view}"
        listed = read_page(client, f"{address}/quarantine")
        assert f'href="{base}/quarantine/{shared}"' in listed
        assert (f'href="{base}/quarantine/{own}"' in listed) == (view == "least")
        assert f'data-base="{base}"' in listed and f'action="{base}/quarantine"' in listed
        for other in VIEWS:
            assert f'href="{PAGES}/views/{other}/quarantine"' in listed
        message = read_page(client, f"{base}/quarantine/{shared}")
        assert message.count(f'data-url="/v1{base}/quarantine/{shared}/replay"') == 2
        whole = f"/v1{base}/quarantine/{shared}"
        assert f'href="{whole}"' in message
        assert client.get(whole).json()["id"] == shared
    read_page(client, f"{PAGES}/views/times/quarantine/{own}", 404)


def test_the_tab_counts_the_messages_of_all_views_and_the_links_those_of_each(
    client: httpx.Client, refused: dict[str, str]
) -> None:
    page = read_page(client, f"{PAGES}/views/times/quarantine")
    tabs, picker = page.split("<nav")[-2:]

    def link(text: str, count: int) -> str:
        unseen = '<span class="unseen">'
        noun = "message" if count == 1 else "messages"
        badge = f'<span class="badge">{unseen}with </span>{count}{unseen} {noun}</span></span>'
        return f">{text} {badge}</a>"

    assert link("Quarantine", 2) in tabs
    assert link("least", 2) in picker and link("times", 1) in picker


def test_a_message_of_a_view_is_resent_by_an_operation_of_its_job(
    client: httpx.Client, refused: dict[str, str]
) -> None:
    shared, key = refused[""], {"Idempotency-Key": "once"}
    one, many = (f"views/{v}/quarantine" for v in VIEWS)
    sent = client.post(f"{JOB}/{one}/{shared}/replay", json={}, headers=key)
    repeated = client.post(f"{JOB}/{many}/replay", json={"ids": [shared]}, headers=key)
    again = client.post(f"{JOB}/{many}/replay", json={"ids": [shared]})
    assert [each.status_code for each in (sent, repeated, again)] == [202, 202, 202], sent.text
    found = client.get(f"{JOB}/operations").json()["operations"]
    by_id = {each["id"]: (each["job"], each["arguments"].get("view")) for each in found}
    assert by_id[sent.json()["id"]] == (VIEWED, "least")
    assert by_id[again.json()["id"]] == (VIEWED, "times")
    assert repeated.json()["id"] == sent.json()["id"]
    for base in (PAGES, f"{PAGES}/views/times"):
        listed = read_page(client, f"{base}/activity")
        assert f"view least, {shared}" in listed and f"view times, {shared}" in listed
    operation = f"{PAGES}/views/times/activity/{sent.json()['id']}"
    assert "resend message" in read_page(client, operation).lower()
    assert "Resending" in read_page(client, f"{PAGES}/views/times/quarantine/{shared}")


def test_the_audit_log_of_a_job_has_the_requests_to_its_views(
    client: httpx.Client, refused: dict[str, str]
) -> None:
    client.post(f"{JOB}/views/least/quarantine/nonsense/replay", json={})
    path = f"/v1/jobs/{VIEWED}.least/quarantine/nonsense/replay"
    page = read_page(client, f"/audit-log?job={VIEWED}")
    assert f'POST {path} <a href="{PAGES}">{VIEWED}</a>' in page
    assert path not in read_page(client, "/audit-log?job=view")


def test_a_message_that_another_view_cannot_decode_is_not_resent(
    client: httpx.Client, refused: dict[str, str]
) -> None:
    """The view `times` does not read the column v, but the job decodes it for `least`."""
    quarantine, shared = "views/times/quarantine", refused[""]
    body = {"message": insert("x").decode()}
    answer = client.post(f"{JOB}/{quarantine}/{shared}/replay", json=body)
    (error,) = problem(answer, 422, "message-refused")["errors"]
    assert "'x' is not a valid INT" in error["message"]
    (checked,) = client.post(f"{PAGES}/{quarantine}/check", json=[shared]).json()
    assert "'x' is not a valid INT" in checked["refused"]


# --- results of several views ---------------------------------------------------------------------


def list_views(client: httpx.Client, **parameters: Any) -> httpx.Response:
    return client.get(f"{JOB}/results", params={"views": ",".join(VIEWS), **parameters})


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize("as_of", [{}, {"as_of": f"epoch:{NEWEST - 1}"}], ids=["now", "then"])
def test_a_listing_of_several_views_continues_in_each_view(
    client: httpx.Client, as_of: dict[str, str]
) -> None:
    first = list_views(client, limit=1, **as_of).json()
    assert first["epoch"] == (NEWEST - 1 if as_of else NEWEST)
    for view, rows in VIEWS.items():
        page = first["views"][view]
        parameters = {"cursor": page["next_cursor"], **as_of}
        rest = client.get(f"{JOB}/views/{view}/results", params=parameters).json()
        assert rest["epoch"] == first["epoch"], rest
        assert [tuple(row.values()) for row in page["rows"] + rest["rows"]] == rows
        assert rest["next_cursor"] is None


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize(
    "given",
    [{"where": "name=bolt"}, {"order": "name"}, {"cursor": "x"}, {"spreadsheet": "true"}],
    ids=["where", "order", "cursor", "spreadsheet"],
)
def test_parameters_of_one_view_are_refused_beside_several(
    client: httpx.Client, given: dict[str, str]
) -> None:
    errors = problem(list_views(client, **given), 422, "parameter-invalid")["errors"]
    assert [each["path"] for each in errors] == [f"query.{name}" for name in given]


@pytest.mark.usefixtures("refused")
def test_several_views_come_as_json_only_and_once_an_epoch(client: httpx.Client) -> None:
    address = f"{JOB}/results?views=least,times&where=&order=&cursor="  # as a form sends nothing
    table = client.get(address, headers={"Accept": "text/csv"})
    problem(table, 406, "accept-unsupported")
    tag = client.get(address).headers["etag"]
    same = client.get(address, headers={"If-None-Match": tag})
    assert (same.status_code, same.headers["x-epoch"]) == (304, str(NEWEST))
    problem(client.get(f"{JOB}/results?views=least,none"), 404, "job-unknown")
    problem(client.get(f"{JOB}/results?views=,times"), 404, "view-required")


@pytest.mark.usefixtures("refused")
def test_several_views_include_what_the_client_waits_for(client: httpx.Client) -> None:
    for reached in ({"min_epoch": NEWEST}, {"after_offset": f"0:{10 * NEWEST + 1}"}):
        assert list_views(client, wait=0, **reached).json()["epoch"] == NEWEST
    for later in ({"min_epoch": NEWEST + 1}, {"after_offset": f"0:{10 * NEWEST + 2}"}):
        late = problem(list_views(client, wait=0.1, **later), 412, "epoch-not-reached")
        assert late["newest"] == NEWEST
    problem(list_views(client, after_offset="x"), 422, "parameter-invalid")
