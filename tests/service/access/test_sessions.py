"""Browsers: sessions that other pages cannot use, tickets for one stream, the audit log."""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from schemas import limits
from schemas.spec.connections import load_connections
from service.access import audit_log, sessions
from service.access.audit_log import AuditLog
from service.access.tokens import Role, Tokens, hash_secret
from service.settings import Settings
from tests.support.console.viewed import VIEWED, put_viewed
from tests.support.service.application import create_application
from tests.support.service.served import SPEC, Served
from tests.support.service.tables import WatchedTable
from tests.support.tables.written_table import write_random_history

SESSION = "/v1/session"


class Console:
    """A service with an operator's and an admin's token, asked as a browser asks."""

    def __init__(self, data: Path) -> None:
        settings = Settings(data, load_connections(None, "127.0.0.1:9"))
        self.tokens = Tokens(settings.paths.tokens)
        self.operator = self.tokens.add("op", "operator")
        self.admin = self.tokens.add("boss", "admin")
        self.data = data
        self.app, self.gated = create_application(settings)

    def browser(self, **headers: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.gated, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers)


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    yield Console(tmp_path)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


@pytest.mark.anyio
async def test_a_session_looks_with_its_cookie_and_changes_with_its_word(console: Console) -> None:
    async with console.browser() as browser:
        assert code(await browser.post(SESSION, json={"token": "rt_no"})) == (401, "unauthorized")
        assert code(await browser.get(SESSION)) == (401, "unauthorized")
        login = await browser.post(SESSION, json={"token": console.admin})
        assert login.status_code == 201
        cookie = login.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Secure" not in cookie
        assert console.admin not in cookie
        output = (await browser.get(SESSION)).json()
        assert (output["who"], output["role"], output["login"]) == ("boss", "admin", True)
        word = {"X-CSRF-Token": output["csrf"]}
        for headers in (
            {},
            {"X-CSRF-Token": ""},
            {"X-CSRF-Token": "é"},
            {"X-CSRF-Token": "0" * 64},
        ):
            raw = {name: value.encode("latin-1") for name, value in headers.items()}
            refused = await browser.put("/v1/jobs/items", content=SPEC, headers=raw)  # type: ignore[arg-type]
            assert code(refused) == (403, "csrf-refused"), headers
        foreign = word | {"Origin": "http://evil.example"}
        refused = await browser.put("/v1/jobs/items", content=SPEC, headers=foreign)
        assert code(refused) == (403, "host-refused")
        own = word | {"Origin": "http://127.0.0.1"}
        assert (await browser.put("/v1/jobs/items", content=SPEC, headers=own)).status_code == 201
        assert (await browser.delete(SESSION, headers=word)).status_code == 204
        assert code(await browser.get("/v1/jobs")) == (401, "unauthorized")


@pytest.mark.anyio
async def test_a_session_has_the_role_of_its_token_and_ends_with_it(console: Console) -> None:
    async with console.browser() as browser:
        login = await browser.post(SESSION, json={"token": console.operator})
        word = {"X-CSRF-Token": login.json()["csrf"]}
        refused = await browser.put("/v1/jobs/items", content=SPEC, headers=word)
        assert code(refused) == (403, "forbidden")
        # A token that is sent counts, and a wrong one is not made good by the cookie.
        wrong = await browser.get("/v1/jobs", headers={"Authorization": "Bearer rt_no"})
        assert code(wrong) == (401, "unauthorized")
        console.tokens.revoke("op")
        assert code(await browser.get("/v1/jobs")) == (401, "unauthorized")


@pytest.mark.anyio
async def test_a_session_survives_the_service_and_not_its_time(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console.browser() as browser:
        headers = {"X-Forwarded-Proto": "https"}
        login = await browser.post(SESSION, json={"token": console.admin}, headers=headers)
        cookie = login.headers["set-cookie"]
        assert cookie.endswith("; Secure")
        pair = {"Cookie": cookie.split(";")[0]}
    kept = console.data / "service" / "sessions.json"
    assert kept.stat().st_mode & 0o077 == 0
    assert pair["Cookie"].split("=", 1)[1] not in kept.read_text()
    settings = Settings(console.data, load_connections(None, "127.0.0.1:9"))
    _, gated = create_application(settings)
    transport = httpx.ASGITransport(gated, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as again:
        assert (await again.get("/v1/jobs", headers=pair)).status_code == 200
        monkeypatch.setattr(limits, "SESSION_SECONDS_MAX", -1)
        assert (await again.get("/v1/jobs", headers=pair)).status_code == 401


@pytest.mark.anyio
async def test_login_is_refused_to_pages_of_other_sites(console: Console) -> None:
    async with console.browser(Origin="http://evil.example") as browser:
        refused = await browser.post(SESSION, json={"token": console.admin})
        assert code(refused) == (403, "host-refused")


@pytest.mark.anyio
async def test_the_audit_log_says_who_requested_which_change(console: Console) -> None:
    admin = {"Authorization": f"Bearer {console.admin}"}
    operator = {"Authorization": f"Bearer {console.operator}"}
    async with console.browser() as browser:
        await browser.put("/v1/jobs/items", content=SPEC, headers=admin)
        await browser.put("/v1/jobs/items", content=SPEC, headers=operator)
        await browser.post("/v1/jobs/items/start", headers={"Authorization": "Bearer rt_no"})
        await browser.get("/v1/jobs", headers=operator)
        assert code(await browser.get("/v1/audit-log", headers=operator)) == (403, "forbidden")
        lines = (await browser.get("/v1/audit-log?limit=3", headers=admin)).json()["lines"]
        assert (await browser.get("/v1/trail?limit=3", headers=admin)).json()["lines"] == lines
    assert {line["from"] for line in lines} == {"127.0.0.1"}
    output = [(line["who"], line["method"], line["path"], line["status"]) for line in lines]
    assert output == [("op", "PUT", "/v1/jobs/items", 403), ("boss", "PUT", "/v1/jobs/items", 201)]
    file = console.data / "service" / "trail.log"
    assert file.stat().st_mode & 0o077 == 0
    assert console.admin not in file.read_text()


@pytest.mark.anyio
async def test_whoever_has_the_response_finds_its_line_in_the_audit_log(console: Console) -> None:
    seen = []

    async def record(scope: Scope, receive: Receive, send: Send) -> None:
        async def look(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen.append((console.data / "service" / "trail.log").read_text().count("\n"))
            await send(message)

        await console.gated(scope, receive, look)

    admin = {"Authorization": f"Bearer {console.admin}"}
    transport = httpx.ASGITransport(record)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as browser:
        for _ in range(2):
            await browser.put("/v1/jobs/items", content=SPEC, headers=admin)
    assert seen == [1, 2]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AuditLog:
    """An audit log with room for a few lines of each kind."""
    monkeypatch.setattr(audit_log, "AUDIT_LOG_BYTES_MAX", 300)
    return AuditLog(tmp_path / "trail.log")


def test_the_audit_log_is_bounded_and_goes_on(kept: AuditLog, tmp_path: Path) -> None:
    for number in range(99):
        kept.note("a", Role.ADMIN, "PUT", f"/{number}", 200)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 8 * 450
    assert [line.path for line in kept.newest(20)] == [f"/{98 - n}" for n in range(20)]


def test_two_services_that_find_a_full_file_rename_it_once(tmp_path: Path, kept: AuditLog) -> None:
    """Each renames what was full when it looked; the second would push the oldest file out."""
    path = tmp_path / "trail.log"
    path.write_bytes(b"x" * 300)
    for _ in range(2):
        audit_log.Files(path).rotate()
    assert {each.name for each in tmp_path.iterdir()} == {"trail.1", "trail.lock"}


def test_a_viewer_s_lines_push_no_line_of_an_admin_out(kept: AuditLog) -> None:
    kept.note("boss", Role.ADMIN, "DELETE", "/v1/jobs/items", 204)
    for number in range(99):
        kept.note("eye", Role.VIEWER, "POST", f"/{number}", 403)
    kept.note("ops", Role.OPERATOR, "POST", "/last", 202)
    found = kept.newest(1_000)
    assert [line.path for line in found[:3]] == ["/last", "/98", "/97"]
    assert found[-1].who == "boss"


def test_lines_of_reads_push_no_line_of_a_change_out(kept: AuditLog) -> None:
    kept.note("boss", Role.ADMIN, "DELETE", "/v1/jobs/items", 204)
    for number in range(99):
        kept.note("boss", Role.ADMIN, "POST", "/v1/sql", 200, reads=[f"items{number}"])
    assert [line.method for line in kept.newest(1_000)] == ["DELETE"]


@pytest.mark.anyio
async def test_reads_of_results_and_topics_leave_a_line(console: Console) -> None:
    write_random_history(console.data)
    viewer = {"Authorization": f"Bearer {console.tokens.add('eye', 'viewer')}"}
    admin = {"Authorization": f"Bearer {console.admin}"}
    async with console.browser() as browser:
        for sql in ("SELECT COUNT(*) AS n FROM items AT EPOCH 2", "DROP TABLE items"):
            await browser.post("/v1/sql", json={"sql": sql}, headers=viewer)
        await browser.get("/topics/shop.product?connection=other", headers=admin)
        await browser.post("/v1/sql", json={"sql": "SELECT 1"})  # a stranger
    lines = (console.data / "service" / "trail-reads.log").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert [(each["who"], each["path"], each["status"], each["reads"]) for each in found] == [
        ("eye", "/v1/sql", 200, ["items AT EPOCH 2"]),
        ("eye", "/v1/sql", 422, []),
        ("boss", "/topics/shop.product", 404, ["other/shop.product"]),
    ]
    assert "COUNT" not in "".join(lines)


@pytest.mark.anyio
async def test_a_login_is_a_line_of_its_role(console: Console) -> None:
    async with console.browser() as browser:
        for token in (console.admin, console.operator):
            assert (await browser.post(SESSION, json={"token": token})).status_code == 201
        viewer = console.tokens.add("eye", "viewer")
        assert (await browser.post("/login", data={"token": viewer})).status_code == 303
        assert (await browser.post("/login", data={"token": console.admin})).status_code == 303
    service = console.data / "service"
    assert (service / "trail.log").read_text().count("\n") == 3
    assert (service / "trail-viewers.log").read_text().count("eye") == 1


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str]]:
    data = tmp_path_factory.mktemp("guarded")
    token = Tokens(data / "service" / "tokens.json").add("eye", "viewer")
    with Served.start(data) as served:
        yield served, token


@pytest.fixture(scope="module")
def followed(guarded: tuple[Served, str]) -> tuple[Served, str]:
    """The service with a job of one epoch, and a job with a query and views."""
    served, _ = guarded
    served.token = Tokens(served.data / "service" / "tokens.json").add("made", "admin")
    watched = WatchedTable(served)
    watched.write({"a": (1,)})
    watched.seen()
    put_viewed(served)
    served.token = None
    return guarded


def test_a_ticket_opens_one_stream_of_its_job_once(followed: tuple[Served, str]) -> None:
    served, token = followed
    headers = {"Authorization": f"Bearer {token}"}
    changes = "/v1/jobs/items/changes?since=0"

    def events(client: httpx.Client, ticket: str, **more: Any) -> int:
        accept = {"Accept": "text/event-stream"}
        with client.stream("GET", f"{changes}&ticket={ticket}", headers=accept, **more) as stream:
            return stream.status_code

    with served.client() as client:
        assert client.get("/v1/jobs/items").status_code == 401

        def ticket() -> str:
            given = client.post("/v1/tickets", json={"job": "items"}, headers=headers)
            assert (given.status_code, given.json()["seconds"]) == (201, 30)
            return str(given.json()["ticket"])

        first = ticket()
        assert events(client, first) == 200
        assert events(client, first) == 401
        assert events(client, "nonsense") == 401
        second = ticket()
        assert client.get(f"/v1/jobs/items?ticket={second}").status_code == 422  # has no such one
        assert client.get(f"/v1/jobs/other/changes?ticket={second}").status_code == 401
        assert events(client, second) == 401  # it was shown at the wrong door
        unknown = client.post("/v1/tickets", json={"job": "nobody"}, headers=headers)
        assert unknown.status_code == 404
        third = ticket()
        Tokens(served.data / "service" / "tokens.json").revoke("eye")
        assert events(client, third) == 401


def test_a_ticket_of_a_job_opens_the_streams_of_its_views(followed: tuple[Served, str]) -> None:
    served, _ = followed
    token = Tokens(served.data / "service" / "tokens.json").add("other-eye", "viewer")
    with served.client() as client:

        def open_stream(ticket_for: str, path: str) -> int:
            headers = {"Authorization": f"Bearer {token}"}
            issued = client.post("/v1/tickets", json={"job": ticket_for}, headers=headers)
            assert issued.status_code == 201, issued.text
            parameters = {"snapshot": "true", "ticket": issued.json()["ticket"]}
            accept = {"Accept": "text/event-stream"}
            path = f"/v1/jobs/{path}/changes"
            with client.stream("GET", path, params=parameters, headers=accept) as stream:
                return stream.status_code

        assert open_stream(VIEWED, VIEWED) == 200
        assert open_stream(VIEWED, f"{VIEWED}/views/most") == 200
        assert open_stream(VIEWED, f"{VIEWED}.most") == 200
        assert open_stream(f"{VIEWED}.most", f"{VIEWED}/views/most") == 200
        assert open_stream(f"{VIEWED}.most", f"{VIEWED}/views/least") == 401
        assert open_stream(f"{VIEWED}.most", VIEWED) == 401
        assert open_stream("items", f"{VIEWED}/views/most") == 401
        headers = {"Authorization": f"Bearer {token}"}
        unknown = client.post("/v1/tickets", json={"job": f"{VIEWED}.none"}, headers=headers)
        assert code(unknown) == (404, "job-unknown")


def test_many_logins_of_one_token_end_its_own_sessions_only(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    admin, viewer = tokens.add("boss", "admin"), tokens.add("eye", "viewer")
    known = sessions.Sessions(tmp_path / "sessions.json", tokens)
    of_admin = known.start(admin)
    of_viewer = [known.start(viewer) for _ in range(limits.SESSIONS_A_TOKEN_MAX + 5)]
    assert of_admin is not None and known.find_role(of_admin) == ("boss", Role.ADMIN)
    alive = [each for each in of_viewer if each is not None and known.find_role(each)]
    assert alive == of_viewer[5:]


def test_a_session_ends_when_it_is_not_used_and_after_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    now = time.time()
    passed = 0.0
    monkeypatch.setattr(time, "time", lambda: now + passed)
    known = sessions.Sessions(tmp_path / "sessions.json", tokens)
    used, idle = (known.start(tokens.add(name, "viewer")) for name in ("used", "idle"))
    assert used is not None and idle is not None
    for hours in range(6, 24, 6):
        passed = hours * 3_600.0
        known = sessions.Sessions(tmp_path / "sessions.json", tokens)  # a service that was killed
        assert known.find_role(used) == ("used", Role.VIEWER)
    assert known.find_role(idle) is None
    passed = 24 * 3_600.0 + 1
    assert known.find_role(used) is None


def test_a_session_is_used_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    known = sessions.Sessions(tmp_path / "sessions.json", tokens)
    session = known.start(tokens.add("a", "viewer"))
    assert session is not None
    later = time.time() + limits.SESSION_SAVE_SECONDS + 1
    monkeypatch.setattr(time, "time", lambda: later)

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(sessions, "write_document", refuse)
    assert known.find_role(session) == ("a", Role.VIEWER)


@pytest.mark.slow
def test_a_stream_ends_soon_after_its_token_is_revoked(followed: tuple[Served, str]) -> None:
    served, _ = followed
    tokens = Tokens(served.data / "service" / "tokens.json")
    accept = {
        "Accept": "text/event-stream",
        "Authorization": f"Bearer {tokens.add('reader', 'viewer')}",
    }
    with (
        served.client() as client,
        client.stream("GET", "/v1/jobs/items/changes?since=0", headers=accept) as stream,
    ):
        pieces = stream.iter_bytes()
        assert next(pieces)
        tokens.revoke("reader")
        began = time.monotonic()
        for _ in pieces:
            pass
        assert time.monotonic() - began < 2 * limits.HEARTBEAT_SECONDS


def test_tickets_end_and_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    token = tokens.add("a", "viewer")
    tickets = sessions.Tickets()
    monkeypatch.setattr(limits, "TICKETS_A_TOKEN_MAX", 2)
    given = [tickets.issue(hash_secret(token), "items") for _ in range(3)]
    assert given[2] is None
    other = hash_secret(tokens.add("b", "viewer"))
    assert tickets.issue(other, "items") is not None
    monkeypatch.setattr(limits, "TICKET_SECONDS_MAX", -1.0)
    assert given[0] is not None and tickets.redeem(given[0], "items") is not None
    late = tickets.issue(hash_secret(token), "items")
    assert late is not None
    assert tickets.redeem(late, "items") is None
    assert limits.TICKET_SECONDS_MAX <= 60
