"""What many tests stand on: one real broker and one Spark a run, a topic name a test."""

from __future__ import annotations

import os
import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from jobs.edge.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKOUT = Path(__file__).resolve().parents[1]

# A run of `make test` tries the same examples each time, so that what it says is about the change
# under test. EXPLORE=1 looks for new ones; what it finds becomes an @example.
settings.register_profile("steady", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile("explore" if os.environ.get("EXPLORE") else "steady")

# Jobs of tests live for seconds, and what the JVM's second compiler does for them comes too late.
os.environ.setdefault("RETALLY_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what comes out into tests/vectors/*.changes; review the difference",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever uses the broker, Spark or a browser is marked so, and `make check` leaves it out."""
    for item in items:
        for heavy in ("broker", "spark", "browser"):
            if heavy in getattr(item, "fixturenames", ()):
                item.add_marker(heavy)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name nobody has used; the test creates the topic as it needs it."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:60].strip("-")
    return f"{words}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from jobs.edge.spark import session

    running = session("tests")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def oracle() -> Path:
    """The outside vectors, which lie beside the checkout where there are any."""
    vectors = CHECKOUT.parent / "shared" / "oracle"
    if not vectors.is_dir():
        pytest.skip(f"NOT CHECKED AGAINST THE OUTSIDE VECTORS: there is no {vectors}")
    return vectors


_STATUS = pytest.StashKey[int]()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[_STATUS] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End the process once all is said. Native libraries of several kinds (an event loop, clients,
    file readers) have threads that outlive the interpreter, and one that is unloaded under its own
    thread ends a run that has passed with a crash."""
    status = config.stash.get(_STATUS, None)
    if status is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
