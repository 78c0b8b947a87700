"""Files of Flink SQL over HTTP: converted in the processes of attempts, with their limits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from schemas import limits
from schemas.spec.connections import load_connections
from service.settings import Settings
from tests.support.service.application import create_application

FLINK = b"""
CREATE TABLE product (name STRING, v INT) WITH ('connector' = 'kafka', 'topic' = 'shop.product',
  'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'canal-json');
SELECT name, SUM(v) AS total FROM product GROUP BY name;
SELECT name, MY_OWN(v) AS total FROM product GROUP BY name;
"""


def convert(data: Path, body: bytes) -> httpx.Response:
    _, gated = create_application(Settings(data, load_connections(None, "127.0.0.1:9")))

    async def post() -> httpx.Response:
        transport = httpx.ASGITransport(gated, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.post("/from-flink", content=body)

    return asyncio.run(post())


def test_a_file_becomes_specs_without_connections_and_notes_with_positions(tmp_path: Path) -> None:
    answer = convert(tmp_path, FLINK)
    assert answer.status_code == 200
    assert answer.text.count("data-spec=") == 1 and "SUM(v)" in answer.text
    assert '<li class="break">5:14: not supported: ' in answer.text


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    answer = convert(tmp_path, b"\xff")
    assert "not UTF-8 at byte 0" in answer.text
    assert "No statement of this file can be converted." in answer.text


def test_files_beyond_the_limit_of_attempts_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ATTEMPTS_WAITING_MAX", 0)
    answer = convert(tmp_path, FLINK)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
    assert "requests of this kind are waiting" in answer.text
