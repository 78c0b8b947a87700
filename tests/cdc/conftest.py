"""Each database with its canal, once for all tests; at the end nothing runs any more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jobs.edge.process.broker import Broker
from tests.cdc.artifacts import ADVICE, missing_programs
from tests.cdc.canal import Canal
from tests.cdc.database import Database, Kind
from tests.cdc.debezium import Debezium


@pytest.fixture(scope="session")
def programs() -> None:
    missing = missing_programs()
    if missing:
        pytest.skip(ADVICE.format(missing=", ".join(missing)))


@pytest.fixture(scope="session", params=["mariadb", "mysql"])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture(scope="session")
def database(
    kind: Kind, programs: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    with Database(kind, tmp_path_factory.mktemp("database") / kind) as running:
        yield running


@pytest.fixture(scope="session")
def brokers(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker for each database, because both have tables of the same names."""
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.address


@pytest.fixture(scope="session")
def canal(
    database: Database, brokers: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Canal]:
    source = Canal(database, brokers, tmp_path_factory.mktemp("canal") / database.kind)
    try:
        source.start()
        source.create_marks()
        yield source
    finally:
        source.stop()


@pytest.fixture(scope="session")
def captured(
    kind: Kind, programs: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    """A database for Debezium: canal would wait for the topics of its tables."""
    with Database(kind, tmp_path_factory.mktemp("captured") / kind) as running:
        yield running


@pytest.fixture
def debezium(
    captured: Database, brokers: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Debezium]:
    """A Debezium that a test starts once there is something for its snapshot."""
    source = Debezium(captured, brokers, tmp_path_factory.mktemp("debezium") / captured.kind)
    try:
        yield source
    finally:
        source.stop()
