"""A service a test module, over a data directory of its own; and none of its jobs left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.service.served import Served, end_jobs


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_jobs(tmp_path)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served.start(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client
