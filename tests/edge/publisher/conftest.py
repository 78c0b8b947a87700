"""Publishers of a small table, none of which outlives its test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.edge.process.broker import Broker
from jobs.edge.publisher.handle import Publisher
from tests.support.published_changelog import WAIT_SECONDS, SmallTable, Start
from tests.support.publisher_configuration import configuration


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    return SmallTable(tmp_path)


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where failpoints leave their marks: a fault that was planned and not met is a failure."""
    folder = tmp_path / "marks"
    folder.mkdir()
    monkeypatch.setenv("RETALLY_FAILPOINT_MARKS", str(folder))
    return folder


@pytest.fixture
def start(broker: Broker, topic: str) -> Iterator[Start]:
    """Starts publishers, and lets none of them outlive the test."""
    started: list[Publisher] = []

    def run(**changed: Any) -> Publisher:
        publisher = Publisher(configuration(broker.address, topic, **changed))
        started.append(publisher)
        publisher.start(WAIT_SECONDS)
        return publisher

    yield run
    for publisher in started:
        publisher.kill()
