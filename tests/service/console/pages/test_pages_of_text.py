"""Pages over HTTP, without a browser: what they say of long messages, and of times."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from jobs.topics.samples import Sample
from schemas.documents.answers import Topic
from schemas.spec.connections import load_connections
from service.answers.samples import Samples
from service.answers.topics import Topics
from service.settings import Settings
from tests.support.service.application import create_application


def open_page(data: Path, address: str, cookie: str = "") -> str:
    _, gated = create_application(Settings(data, load_connections(None, "127.0.0.1:9")))

    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(gated, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(address, headers={"Cookie": cookie})

    answer = asyncio.run(get())
    assert answer.status_code == 200
    return answer.text


@pytest.mark.parametrize(("length", "cut"), [(2_000, False), (2_001, True)])
def test_a_message_that_is_not_whole_has_no_button_to_copy_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int, cut: bool
) -> None:
    async def read_newest(*_: object) -> list[Sample]:
        return [Sample("t", 0, 7, None, None, ("é" * length).encode())]

    monkeypatch.setattr(Topics, "describe_topic", lambda *_: Topic("t", 8, None, {}))
    monkeypatch.setattr(Samples, "read_newest", read_newest)
    page = open_page(tmp_path, "/topics/t")
    assert "é" * 2_000 in page and "é" * 2_001 not in page
    assert ("Only the first 2,000 characters are shown." in page) is cut
    assert ('Copy<span class="unseen"> Message at offset 7' in page) is not cut


def test_each_time_has_the_name_that_the_zone_has_then(tmp_path: Path) -> None:
    rest = '"who": "a", "method": "PUT", "path": "/", "status": 1}\n'
    line = f'{{"at": "2026-%s-15T12:00:00.000Z", {rest}'
    log = tmp_path / "service" / "trail.log"
    log.parent.mkdir()
    log.write_text(line % "01" + line % "07")
    page = open_page(tmp_path, "/audit-log", "retally-zone=Europe/Berlin")
    assert "2026-01-15 13:00:00 CET<" in page and "2026-07-15 14:00:00 CEST<" in page
