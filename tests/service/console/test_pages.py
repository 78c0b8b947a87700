"""Every page without a browser: status, headers, what it must not say; who may see it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import httpx
import pytest

from schemas.spec.connections import load_connections
from service.settings import Settings
from tests.support.console.shop import Shop
from tests.support.service.application import create_application, find_routes, is_address_of
from tests.support.service.served import CHECKOUT, Served

# Of a job `items`; each page that is added is added here.
PAGES = [
    "/",
    "/login",
    "/new",
    "/audit-log",
    "/topics",
    "/rest",
    "/new?template=windows",
    "/sql",
    "/health",
    "/help",
    "/docs/time.md",
    "/jobs/items",
    "/jobs/items/spec",
    "/jobs/items/results",
    "/jobs/items/results?as_of=epoch:9&where=name%5E%3D%3C&order=-top",
    "/jobs/items/diff?from=0",
    "/jobs/items/results/%3Cb%3E%26amp%3B",
    "/jobs/items/results/bolt?epoch=59",
    "/jobs/items/changes?key=%3Cb%3E%26amp%3B",
    "/jobs/items/quarantine",
    "/jobs/items/quarantine/60-t-0-600",
    "/jobs/items/activity",
    "/jobs/items/activity/audit-failed",
    "/jobs/items/activity/audit-different",
]
HOSTILE = "<b>&amp;"  # a group of the job
# Files, other names of a page, and what needs a broker (test_topic_pages.py).
NO_PAGES = {
    "/assets/{digest}/{name}",
    "/jobs",
    "/jobs/{name}/export/{form}",
    "/topics/{name}",
}


@pytest.fixture
def client(shop: tuple[Served, Shop]) -> httpx.Client:
    return shop[0].client()


def test_every_page_is_in_the_list(tmp_path: Path) -> None:
    application, _ = create_application(Settings(tmp_path, load_connections(None, "127.0.0.1:9")))
    paths = {
        route.path
        for route in find_routes(application)
        if "GET" in (route.methods or ()) and type(route).__module__.startswith("service.console")
    } - NO_PAGES
    assert len(paths) > 10
    addresses = {page.partition("?")[0] for page in PAGES}
    assert [
        path
        for path in sorted(paths)
        if not any(is_address_of(path, address) for address in addresses)
    ] == []


@pytest.mark.parametrize("path", PAGES)
def test_a_page_allows_no_code_but_its_own(client: httpx.Client, path: str) -> None:
    answer = client.get(path, follow_redirects=True)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(
        each.split(" ", 1) for each in answer.headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    text = answer.text.lower()
    assert "style=" not in text and "<style" not in text and " on" + "click" not in text
    for script in text.split("<script")[1:]:
        assert "src=" in script.partition(">")[0]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_writes_values_and_never_what_they_might_mean(
    client: httpx.Client, path: str
) -> None:
    assert HOSTILE not in client.get(path, follow_redirects=True).text


def test_the_page_of_the_routes_says_where_each_parameter_goes(client: httpx.Client) -> None:
    rows = re.findall(r'<td data-label="In">([^<]*)</td>', client.get("/rest").text)
    assert set(rows) == {"path", "query", "header"}


def test_a_form_of_a_route_sends_nothing_by_itself(client: httpx.Client) -> None:
    """Without the script, the browser would write a body, such as a token, into the address."""
    forms = re.findall("<form[^>]*data-verb[^>]*>", client.get("/rest").text)
    assert forms
    assert all('method="dialog"' in form for form in forms)
    danger = {path for form in forms for path in re.findall('data-path="(.*?)".*danger', form)}
    assert {"/v1/jobs/{name}", "/v1/jobs/{name}/approve", "/v1/jobs/{name}/rewind"} <= danger
    assert "/v1/jobs/{name}/stop" not in danger


def test_a_range_before_the_calendar_is_one_that_can_be_written(client: httpx.Client) -> None:
    first = "0001-01-01T00:00:00Z"
    assert client.get("/jobs/items", params={"from": first, "to": first}).status_code == 200


def test_what_is_not_there_is_a_page_too(client: httpx.Client) -> None:
    answer = client.get("/jobs/no-such-job")
    assert answer.status_code == 404
    assert "There is no such job or view" in answer.text
    answer = client.get("/jobs/%3Cscript%3Ealert(1)")
    assert answer.status_code == 404
    assert "<script>alert" not in answer.text


def test_an_address_that_is_none_is_a_page_for_people_and_a_problem_for_programs(
    client: httpx.Client,
) -> None:
    html = {"Accept": "text/html,application/xhtml+xml"}
    answer = client.get("/jbos/<i>", headers=html)
    assert (answer.status_code, answer.headers["content-type"][:9]) == (404, "text/html")
    assert "<i>" not in answer.text
    for headers, path in (({}, "/jbos"), (html, "/v1/jbos")):
        answer = client.get(path, headers=headers)
        assert answer.json()["code"] == "not-found"
    assert client.get("/jobs").headers["location"] == "/"


def test_assets_are_kept_for_good_and_change_their_address_when_they_change(
    client: httpx.Client,
) -> None:
    text = client.get("/").text
    style = text.partition('rel="stylesheet" href="')[2].partition('"')[0]
    answer = client.get(style)
    assert answer.headers["content-type"] == "text/css; charset=utf-8"
    assert "immutable" in answer.headers["cache-control"]
    name = style.rpartition("/")[2]
    assert client.get(f"/assets/000000000000/{name}").status_code == 404
    assert client.get(style.replace(name, "..%2fpage.py")).status_code == 404


def test_without_a_session_a_page_leads_to_the_login_and_back(
    guarded: tuple[Served, dict[str, str]],
) -> None:
    served, tokens = guarded
    with httpx.Client(base_url=served.address, trust_env=False) as client:
        answer = client.get("/jobs/items?level=INFO")
        assert answer.status_code == 303
        assert answer.headers["location"] == "/login?next=%2Fjobs%2Fitems%3Flevel%3DINFO"
        answer = client.get(answer.headers["location"])
        assert 'value="/jobs/items?level=INFO"' in answer.text
        refused = client.post("/login", data={"token": "rt_wrong", "next": "/jobs/items"})
        assert refused.status_code == 401
        assert "This token is not valid" in refused.text
        given = {"token": tokens["viewer"], "next": "/jobs/items?level=INFO"}
        taken = client.post("/login", data=given)
        assert taken.status_code == 303
        assert taken.headers["location"] == "/jobs/items?level=INFO"
        assert client.get("/jobs/items").status_code == 200


@pytest.mark.parametrize("place", ["//elsewhere.org", "https://elsewhere.org", "/\\elsewhere.org"])
def test_a_login_leads_to_no_other_site(guarded: tuple[Served, dict[str, str]], place: str) -> None:
    served, tokens = guarded
    with httpx.Client(base_url=served.address, trust_env=False) as client:
        taken = client.post("/login", data={"token": tokens["viewer"], "next": place})
        assert taken.headers["location"] == "/"


def test_a_login_from_a_page_of_another_site_is_refused(
    guarded: tuple[Served, dict[str, str]],
) -> None:
    served, tokens = guarded
    with httpx.Client(base_url=served.address, trust_env=False) as client:
        headers = {"Origin": "https://elsewhere.org"}
        answer = client.post("/login", data={"token": tokens["viewer"]}, headers=headers)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


def test_every_file_of_the_console_is_in_the_wheel() -> None:
    """Their suffixes are those that pyproject.toml takes along; folders without code are too."""
    configured = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["setuptools"]
    taken = {pattern.removeprefix("*") for pattern in configured["package-data"]["*"]}
    assert "namespaces" not in configured["packages"]["find"]  # which is true then
    for folder in ("assets", "templates"):
        for path in (CHECKOUT / "service" / "console" / folder).rglob("*"):
            assert path.is_dir() or path.suffix in taken, path


def test_jobs_are_found_by_letters_of_their_names_and_by_their_states(client: httpx.Client) -> None:
    assert 'href="/jobs/items"' in client.get("/?find=TEM").text
    assert "No matching jobs" in client.get("/?find=other").text
    assert 'href="/jobs/items"' in client.get("/?state=created").text
    assert 'href="/jobs/items"' not in client.get("/?state=failed").text
    assert HOSTILE not in client.get("/", params={"find": HOSTILE}).text


def test_the_audit_log_is_of_one_job_if_wanted(client: httpx.Client) -> None:
    text = client.get("/audit-log?job=items").text
    assert "PUT /v1/jobs/items" in text and '<a href="/jobs/items">items</a>' in text
    assert "PUT /v1/jobs/items" not in client.get("/audit-log?job=item").text


def test_a_page_of_what_is_not_there_leads_back(client: httpx.Client) -> None:
    answer = client.get("/jobs/items/results/no-such-group")
    assert answer.status_code == 404
    assert "no-such-group" in answer.text
    assert (
        '<a class="button main" href="/jobs/items/results">Back to results of items' in answer.text
    )
