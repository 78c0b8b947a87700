"""Who may do what: every route, every role, and the ways around that browsers know."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from jobs.cli.main import main
from schemas.spec.connections import load_connections
from service.access.tokens import ROLES, Role, TokenRefused, Tokens
from service.settings import Settings
from tests.support.service.application import create_application, find_routes
from tests.support.service.served import Served

OPEN = {"/healthz", "/readyz"}
# Of the console: whoever is to log in sees its form, and what that looks like.
OPEN_PAGES = {"/login", "/favicon.ico", "/assets/{digest}/{name}"}
LOGIN = ("POST", "/v1/session")  # has its token in the body; test_sessions has what becomes of it
# What needs more than a viewer's token; every other route is for viewers.
ACTIONS = ("start", "pause", "resume", "stop", "restart", "savepoints", "audit")
OPERATOR = {f"/v1/jobs/{{name}}/{action}" for action in ACTIONS}
LOGS = "/v1/jobs/{name}/logs"  # raw output of our processes
ADMIN = {
    "/v1/jobs/{name}",
    "/v1/jobs/{name}/rewind",
    "/v1/jobs/{name}/clone",
    "/v1/jobs/{name}/approve",
    "/v1/jobs/{name}/offsets",
    "/v1/jobs/{name}/quarantine/{id}/replay",
    "/v1/jobs/{name}/quarantine/replay",
    "/jobs/{name}/quarantine/check",
    "/v1/jobs/{name}/savepoints/{savepoint}",
}


def needed(method: str, path: str) -> Role:
    if (path in OPERATOR and method == "POST") or path in (LOGS, "/health"):
        return Role.OPERATOR
    if path in ADMIN and method in ("PUT", "POST", "PATCH", "DELETE"):
        return Role.ADMIN
    if path in ("/v1/audit-log", "/v1/trail", "/audit-log", "/new", "/preview", "/from-flink"):
        return Role.ADMIN
    if path.startswith(("/topics", "/v1/topics")):
        return Role.ADMIN
    return Role.VIEWER


class Guarded:
    """The application in this process, with a token of each role."""

    def __init__(self, data: Path, host: str = "127.0.0.1", *, tokens: bool = True) -> None:
        self.settings = Settings(data, load_connections(None, "127.0.0.1:9"), host=host)
        known = Tokens(self.settings.paths.tokens)
        self.tokens = {r: known.add(r.name.lower(), r.name.lower()) for r in Role} if tokens else {}
        self.app, self.gated = create_application(self.settings)

    def routes(self, *, pages: bool = False) -> Iterator[tuple[str, str]]:
        """Method and path of every route of the API, or of the console."""
        found = set()
        for route in find_routes(self.app):
            of_console = type(route).__module__.startswith("service.console") or (
                route.path in OPEN_PAGES
            )
            for method in sorted(route.methods or ()):
                if of_console == pages:
                    found.add((method, route.path))
        yield from sorted(found)

    async def ask(self, method: str, path: str, **headers: str) -> httpx.Response:
        transport = httpx.ASGITransport(self.gated, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, headers=headers)


@pytest.fixture
def guarded(tmp_path: Path) -> Guarded:
    return Guarded(tmp_path)


def address(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "x", path)


def run(coroutine: Any) -> Any:
    import asyncio

    return asyncio.run(coroutine)


def test_every_route_asks_for_a_token_of_its_role(guarded: Guarded) -> None:
    walked, documented = 0, guarded.app.openapi()["paths"]
    for method, path in guarded.routes():
        if path in OPEN:
            assert run(guarded.ask(method, path)).status_code in (200, 503)
            continue
        if (method, path) == LOGIN:
            assert run(guarded.ask(method, path)).status_code == 422
            continue
        walked += 1
        for wrong in ("", "Bearer", "Bearer rt_wrong", "Basic eDp4", f"Bearer {'x' * 5_000}"):
            answer = run(guarded.ask(method, address(path), Authorization=wrong))
            assert answer.status_code == 401, (method, path, wrong)
            assert answer.json()["code"] == "unauthorized"
        for role, token in guarded.tokens.items():
            answer = run(guarded.ask(method, address(path), Authorization=f"Bearer {token}"))
            refused = answer.status_code == 403
            assert refused == (role < needed(method, path)), (method, path, role)
        (security,) = documented[path][method.lower()]["security"]
        assert max(ROLES[each] for each in security["HTTPBearer"]) == needed(method, path), path
    assert walked >= 28


def test_every_page_leads_to_the_login_and_asks_for_its_role(guarded: Guarded) -> None:
    walked = 0
    for method, path in guarded.routes(pages=True):
        if path in OPEN_PAGES:
            answer = run(guarded.ask(method, address(path)))
            assert answer.status_code in (200, 307, 401, 404)  # 307 leads the icon to its asset
            continue
        walked += 1
        for wrong in ("", "Bearer rt_wrong"):
            answer = run(guarded.ask(method, address(path), Authorization=wrong))
            assert answer.status_code == 303, (method, path, wrong)
            assert answer.headers["location"].startswith("/login")
        for role, token in guarded.tokens.items():
            answer = run(guarded.ask(method, address(path), Authorization=f"Bearer {token}"))
            assert (answer.status_code == 403) == (role < needed(method, path)), (path, role)
            assert answer.status_code == 303 or (
                answer.headers["content-type"].startswith("text/html")
            )
    assert walked >= 5


def test_a_token_is_kept_as_a_hash_and_ends_when_it_is_revoked(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    tokens, other = Tokens(file), Tokens(file)
    tokens.add("boss", "admin")
    token = tokens.add("ci", "operator")
    assert token not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    assert other.find_role(token) == ("ci", Role.OPERATOR)
    tokens.revoke("ci")
    assert other.find_role(token) is None
    for name, role in (("../x", "admin"), ("a", "king"), ("", "admin")):
        with pytest.raises(TokenRefused):
            tokens.add(name, role)


def test_without_tokens_only_loopback_names_and_no_pages_of_others(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, tokens=False)
    for host in (
        "evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "",
        "localhost.evil.example",
    ):
        answer = run(guarded.ask("GET", "/v1/jobs", Host=host))
        assert (answer.status_code, answer.json()["code"]) == (403, "host-refused"), host
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
        answer = run(guarded.ask("POST", "/v1/jobs/x/start", Origin=origin))
        assert (answer.status_code, answer.json()["code"]) == (403, "host-refused"), origin
    for host in ("localhost:8080", "127.0.0.1", "[::1]:80"):
        assert run(guarded.ask("GET", "/v1/jobs", Host=host)).status_code == 200, host


def test_no_answer_invites_a_page_of_another_site(guarded: Guarded) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}):
        answer = run(guarded.ask("OPTIONS", "/v1/jobs", **headers))
        assert not any(name.startswith("access-control") for name in answer.headers)
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_first_start_beyond_loopback_makes_a_token_and_says_it_once(tmp_path: Path) -> None:
    with _served_beyond_loopback(tmp_path) as (url, told):
        (token,) = re.findall(r"\brt_[A-Za-z0-9_-]+", told)
        assert httpx.get(f"{url}/v1/jobs", trust_env=False).status_code == 401
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{url}/v1/jobs", headers=headers, trust_env=False).status_code == 200
    known = Tokens(tmp_path / "service" / "tokens.json")
    assert known.find_role(token) == ("first", Role.ADMIN)
    with _served_beyond_loopback(tmp_path) as (url, told):
        assert not re.search(r"\brt_", told)
        assert httpx.get(f"{url}/v1/jobs", headers=headers, trust_env=False).status_code == 200


@contextmanager
def _served_beyond_loopback(data: Path) -> Iterator[tuple[str, str]]:
    """The address of a service that listens on all addresses, and what it said until ready."""
    log = data.with_suffix(".log")
    with log.open("wb") as errors:
        served = Served.start(data, "--host", "0.0.0.0", errors=errors)
    try:
        yield f"http://127.0.0.1:{served.address.rpartition(':')[2]}", log.read_text()
    finally:
        served.stop()


def test_tokens_are_made_and_taken_away_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serve = ["serve", "--data", str(tmp_path)]
    assert main([*serve, "--new-token", "me=admin"]) == 0
    token = capsys.readouterr().out.strip()
    known = Tokens(tmp_path / "service" / "tokens.json")
    assert known.find_role(token) == ("me", Role.ADMIN)
    assert main([*serve, "--new-token", "you=king"]) == 2
    assert main([*serve, "--new-token", "you=viewer"]) == 0
    assert main([*serve, "--revoke-token", "me"]) == 0
    assert known.find_role(token) is None


def test_the_last_token_is_not_revoked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    serve = ["serve", "--data", str(tmp_path)]
    assert main([*serve, "--new-token", "me=admin"]) == 0
    token = capsys.readouterr().out.strip()
    assert main([*serve, "--revoke-token", "me"]) == 2
    refused = capsys.readouterr().err
    assert "'me' is the last token" in refused and "tokens.json" in refused
    assert Tokens(tmp_path / "service" / "tokens.json").find_role(token) == ("me", Role.ADMIN)


def test_a_token_lasts_a_second_or_is_refused_and_an_expired_one_is_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve = ["serve", "--data", str(tmp_path)]
    for lasting in ("me=admin:0d", "me=admin:"):
        assert main([*serve, "--new-token", lasting]) == 2
        assert "retally:" in capsys.readouterr().err
    tokens = Tokens(tmp_path / "tokens.json")
    tokens.add("boss", "admin")
    tokens.add("guest", "viewer", 1)
    later = time.time() + 2
    monkeypatch.setattr(time, "time", lambda: later)
    assert [each.name for each in tokens.list_valid()] == ["boss"]
    tokens.revoke("guest")
    assert "guest" not in (tmp_path / "tokens.json").read_text()


@pytest.mark.parametrize("becomes", [None, b"", b"[]", b"[{", b'[{"name": 1}]'])
def test_a_service_whose_tokens_are_lost_lets_nobody_in(
    guarded: Guarded, becomes: bytes | None
) -> None:
    file = guarded.settings.paths.tokens
    admin = f"Bearer {guarded.tokens[Role.ADMIN]}"
    assert run(guarded.ask("GET", "/v1/jobs", Authorization=admin)).status_code == 200
    if becomes is None:
        file.unlink()
    else:
        file.write_bytes(becomes)
    for headers in ({}, {"Authorization": admin}, {"Host": "localhost"}):
        answer = run(guarded.ask("PUT", "/v1/jobs/x", **headers))
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), headers
        assert run(guarded.ask("GET", "/v1/jobs", **headers)).status_code == 401, headers


def test_a_service_that_starts_with_a_damaged_token_file_lets_nobody_in(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    guarded.settings.paths.tokens.write_bytes(b"")
    again = Guarded(tmp_path, tokens=False)
    assert run(again.ask("GET", "/v1/jobs")).status_code == 401
    with pytest.raises(TokenRefused, match="cannot read"):
        Tokens(guarded.settings.paths.tokens).add("new", "admin")


def test_an_open_service_closes_with_its_first_token_for_good(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, tokens=False)
    assert run(guarded.ask("GET", "/v1/jobs")).status_code == 200
    wrong = run(guarded.ask("GET", "/v1/jobs", Authorization="Bearer rt_wrong"))
    assert (wrong.status_code, wrong.json()["code"]) == (401, "unauthorized")
    file = guarded.settings.paths.tokens
    token = f"Bearer {Tokens(file).add('me', 'admin')}"
    assert run(guarded.ask("GET", "/v1/jobs")).status_code == 401
    assert run(guarded.ask("GET", "/v1/jobs", Authorization=token)).status_code == 200
    file.unlink()
    assert run(guarded.ask("GET", "/v1/jobs")).status_code == 401


@pytest.mark.parametrize(
    ("credential", "status"),
    [("Bearer", 401), ("Bearer rt_wrong", 401), ("", 200), ("Basic eDp4", 200), ("Digest x", 200)],
)
def test_an_open_service_checks_bearer_tokens_and_ignores_other_schemes(
    credential: str, status: int, tmp_path: Path
) -> None:
    guarded = Guarded(tmp_path, tokens=False)
    for path in ("/v1/jobs", "/v1/session", "/healthz"):
        answer = run(guarded.ask("GET", path, Authorization=credential))
        assert answer.status_code == (200 if path == "/healthz" else status), path


def test_a_closed_service_refuses_a_proxys_password(guarded: Guarded) -> None:
    answer = run(guarded.ask("GET", "/v1/jobs", Authorization="Basic eDp4"))
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", {"Host": "[localhost]"}),
        ("GET", {"Host": "evil.com@localhost"}),
        ("GET", {"Host": "localhost/evil"}),
        ("POST", {"Host": "localhost", "Origin": "http://[::1"}),
        ("POST", {"Host": "localhost", "Origin": "http://[x]/"}),
        ("DELETE", {"Host": "localhost", "Origin": "https://localhost"}),
        ("POST", {"Host": "localhost", "Origin": "https://localhost", "X-Forwarded-Proto": "http"}),
    ],
)
async def test_a_crooked_host_or_origin_is_refused_like_any_other_s(
    method: str, headers: dict[str, str], tmp_path: Path
) -> None:
    answer = await Guarded(tmp_path, tokens=False).ask(method, "/v1/session", **headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "host-refused")


@pytest.mark.anyio
async def test_an_unknown_parameter_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, tokens=False)
    answer = await guarded.ask("GET", "/v1/jobs/items/results?asof=epoch:3", Host="localhost")
    document = answer.json()
    assert (answer.status_code, document["code"]) == (422, "parameter-unknown")
    assert document["detail"].startswith("unknown parameter 'asof'; known: after_offset, as_of, ")
    answer = await guarded.ask("GET", "/openapi.json?all=1", Host="localhost")
    assert "known: none" in answer.json()["detail"]


def test_no_route_takes_a_parameter_that_it_does_not_have(guarded: Guarded) -> None:
    admin = f"Bearer {guarded.tokens[Role.ADMIN]}"
    for method, path in [*guarded.routes(), *guarded.routes(pages=True)]:
        place = f"{address(path)}?nobody-has-this=1"
        answer = run(guarded.ask(method, place, Authorization=admin))
        assert answer.status_code == 422, (method, path)
        assert "nobody-has-this" in answer.text, (method, path)
        if answer.headers["content-type"] == "application/problem+json":
            assert answer.json()["code"] == "parameter-unknown", (method, path)


def test_a_token_ends_in_its_time_and_is_replaced_with_overlap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve = ["serve", "--data", str(tmp_path)]

    def made(what: str) -> str:
        assert main([*serve, "--new-token", what]) == 0
        return capsys.readouterr().out.strip()

    lasting, first = made("boss=admin"), made("ci=operator:30d")
    assert main([*serve, "--new-token", "ci=operator:30"]) == 2
    assert "30 has no unit" in capsys.readouterr().err
    second = made("ci=operator:30d")
    assert main([*serve, "--list-tokens"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed[0] == "boss admin, does not expire"
    assert [line.partition(", expires ")[0] for line in listed[1:]] == ["ci operator"] * 2
    known, now = Tokens(tmp_path / "service" / "tokens.json"), time.time()

    def valid_in(days: float) -> list[str]:
        monkeypatch.setattr(time, "time", lambda: now + days * 86_400)
        return [each for each in (lasting, first, second) if known.find_role(each)]

    assert valid_in(0.9) == [lasting, first, second]
    assert valid_in(1.1) == [lasting, second]
    assert valid_in(31) == [lasting]
    monkeypatch.undo()
    assert main([*serve, "--revoke-token", "ci"]) == 0
    assert [known.find_role(each) for each in (first, second)] == [None, None]
