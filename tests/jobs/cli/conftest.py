"""The lab: one job that has run twice, for many quick tests of its tables and topics."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.cli.main import main
from jobs.edge.process.broker import Broker
from tests.support.command.lab import JOB, Answer, Command, Lab, Retally
from tests.support.command.shop import Shop, spec_text
from tests.support.warm_driver import warm_driver


@pytest.fixture(scope="session")
def command(broker: Broker) -> Command:
    return Command(broker.address)


@pytest.fixture(scope="session")
def lab(
    broker: Broker, command: Command, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    """Run a job twice over some 500 changes in 4 partitions, with a savepoint in between."""
    home = tmp_path_factory.mktemp("command")
    mark = uuid.uuid4().hex[:8]
    shop = Shop(broker.address, f"shop-{mark}", seed=7)
    spec, data = home / "spec.yaml", home / "data"
    spec.write_text(spec_text(JOB, shop.topic, f"items-{mark}"))
    arguments = ["run", str(spec), "--data", str(data), "--until-caught-up"]
    shop.feed(300)
    first = warm_driver(*arguments, "--brokers", broker.address)
    assert first.returncode == 0, first.stderr
    kept = shop.truth()
    assert main(["savepoint", JOB, "--data", str(data), "--name", "first"]) == 0
    shop.feed(200)
    second = warm_driver(*arguments, "--brokers", broker.address)
    assert second.returncode == 0, second.stderr
    yield Lab(command, data, spec, shop.topic, shop.rejected, kept, shop.truth())
    shop.close()


@pytest.fixture
def copied(lab: Lab, tmp_path: Path) -> Path:
    """Copy the data directory, for a test that changes it."""
    shutil.copytree(lab.data, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def retally(capsys: pytest.CaptureFixture[str]) -> Retally:
    """Return a function that calls the command in this process: exit code, output, errors."""

    def call(*arguments: str) -> Answer:
        code = main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return call
