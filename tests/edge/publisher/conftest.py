"""Publishers of a small table, none of which outlives its test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.edge.process.broker import Broker
from tests.support.published_changelog import Publishing, SmallTable


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where failpoints leave their marks: a fault that was planned and not met is a failure."""
    folder = tmp_path / "marks"
    folder.mkdir()
    monkeypatch.setenv("RETALLY_FAILPOINT_MARKS", str(folder))
    return folder


@pytest.fixture
def made(broker: Broker, topic: str, tmp_path: Path) -> Iterator[Publishing]:
    made = Publishing(broker.address, topic, SmallTable(tmp_path))
    yield made
    for publisher in made.started:
        publisher.kill()
