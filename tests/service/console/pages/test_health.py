"""The page about the service's health, over HTTP: what it asks, and what it shows to whom."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path

import httpx
import pytest

from schemas.spec.connections import Connection, Connections, load_connections
from service.access.tokens import Tokens
from service.answers.topics import Topics
from service.settings import Settings
from tests.support.service.application import create_application


def open_page(data: Path, connections: Connections, role: str) -> str:
    settings = Settings(data, connections)
    token = Tokens(settings.paths.tokens).add(f"a-{role}", role)
    _, gated = create_application(settings)

    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(gated, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get("/health", headers={"Authorization": f"Bearer {token}"})

    answer = asyncio.run(get())
    assert answer.status_code == 200
    return answer.text


def test_only_an_admin_sees_the_names_of_connections(tmp_path: Path) -> None:
    connections = load_connections(None, "127.0.0.1:9")
    of_operator = open_page(tmp_path, connections, "operator")
    assert "0 of 1 connections answer" in of_operator and "unhealthy" in of_operator
    assert "Brokers of" not in of_operator and "did not answer" not in of_operator
    of_admin = open_page(tmp_path, connections, "admin")
    assert "Brokers of default" in of_admin and "did not answer" in of_admin


def test_brokers_are_asked_at_once_and_requests_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2)

    def measure(_: Topics, name: str) -> float:
        both.wait(4)
        return 0.01

    monkeypatch.setattr(Topics, "measure_answer", measure)
    named = {name: Connection(name, ("127.0.0.1:9",)) for name in ("east", "west")}
    page = open_page(tmp_path, Connections(named), "admin")
    assert page.count("answer in 10 ms") == 2
    assert re.search(r'Requests in progress</th><td class="num">1</td>', page)
    assert re.search(r'Idle connections</th><td class="num">\d+</td>', page)
