"""Offsets moved by hand: an epoch of its own, within what the topic has, and never forgotten."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaProducer

from jobs.changing.clone import clone
from jobs.changing.offsets import CannotMove, move_offsets
from jobs.changing.rewind import rewind
from jobs.checking.audit import CannotAudit, audit
from jobs.cli.main import main
from jobs.core.job.cloning import clone_spec
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.table.reading import TableReader
from jobs.edge.table.retention import expire_history
from schemas.spec.connections import load_connections
from schemas.spec.file import load_spec
from schemas.types.sql_types import INT, STRING
from tests.support.tables.written_table import WrittenTable

pytestmark = pytest.mark.broker

QUERY = "SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name"


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    """One partition of thirty records."""
    name = f"moved-{uuid.uuid4().hex[:8]}"
    with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
        admin.ensure_topic(name, 1, {})
    producer = KafkaProducer(bootstrap_servers=broker.address)
    for _ in range(30):
        producer.send(name, b"{}", partition=0)
    producer.flush()
    producer.close()
    return name


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
        yield admin


@pytest.fixture
def written(tmp_path: Path, topic: str) -> WrittenTable:
    table = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT}, topic=topic)
    table.epoch({("a",): (1, 5)})
    table.epoch({("a",): (1,), ("b",): (2,)})
    return table


def test_a_move_is_an_epoch_that_changes_offsets_only(
    written: WrittenTable, topic: str, admin: KafkaAdmin
) -> None:
    before = written.reader()
    done = move_offsets(written.place, {topic: {"0": 7}}, admin, at=2)
    assert done.row is not None
    after = written.reader()
    assert (done.row.epoch, done.row.kind, done.row.moved) == (3, "offsets", 3)
    assert after.newest.offsets == {topic: {"0": 7}}
    assert after.newest.generation == before.newest.generation  # hot state needs nothing
    assert after.results() == before.results()
    assert list(after.changes(2)) == []
    again = move_offsets(written.place, {topic: {"0": 9}}, admin)
    assert again.row is not None and (again.row.epoch, again.row.moved) == (4, 3)
    assert move_offsets(written.place, {topic: {"0": 9}}, admin).row is None
    reset = move_offsets(written.place, None, admin)
    assert reset.row is not None and reset.row.offsets == {topic: {"0": 0}}


@pytest.mark.parametrize(
    ("partition", "offset", "at", "reason"),
    [
        ("0", 31, None, "/0 has the offsets 0 to 30, not 31"),
        ("1", 0, None, "has no partition 1, but 0 to 0"),
        ("0", 5, 1, "is at epoch 2, not 1"),
    ],
)
def test_a_move_that_cannot_be_is_refused_with_the_range(
    written: WrittenTable,
    topic: str,
    admin: KafkaAdmin,
    partition: str,
    offset: int,
    at: int | None,
    reason: str,
) -> None:
    version = written.reader().version
    with pytest.raises(CannotMove, match=reason):
        move_offsets(written.place, {topic: {partition: offset}}, admin, at=at)
    with pytest.raises(CannotMove, match="does not read 'other'"):
        move_offsets(written.place, {"other": {"0": 0}}, admin)
    assert written.reader().version == version


def test_that_offsets_were_moved_is_told_until_it_is_made_good(
    written: WrittenTable, topic: str, admin: KafkaAdmin, broker: Broker
) -> None:
    place = written.place
    move_offsets(place, {topic: {"0": 7}}, admin)
    connections = load_connections(None, broker.address)
    with pytest.raises(CannotAudit, match="moved by hand at epoch 3"):
        audit(place, connections, admin, "local[1]")
    assert written.reader().explain(("a",)).moved == 3
    other = JobDirectory(place.data, "other")
    clone(place, other, clone_spec(load_spec(place.spec), "other"), None)
    assert TableReader.open(other).newest.moved == 1
    old = expire_history(written.table.open(place.table, written.layout), 10**18, 3, "0" * 32)
    assert old is not None and old.epoch_max == 2  # the newest row is never history
    assert rewind(place, "2", admin).row is not None
    assert written.reader().newest.moved is None
    assert written.reader().explain(("a",)).moved is None


def test_the_command_shows_and_sets_them(
    written: WrittenTable, topic: str, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--data", str(written.place.data), "--brokers", broker.address]
    assert main(["offsets", "items", *data, "--json"]) == 0
    assert f'"offsets": {{"{topic}": {{"0": 20}}}}' in capsys.readouterr().out
    assert main(["offsets", "items", *data, "--set", f"{topic}/0=7", "--at", "2"]) == 0
    shown = capsys.readouterr()
    assert "moved by hand at epoch 3" in shown.out + shown.err
    assert main(["results", "items", *data[:2]]) == 0
    assert "moved by hand at epoch 3" in capsys.readouterr().err
    assert main(["offsets", "items", *data, "--set", f"{topic}/0=99"]) == 1
    assert "has the offsets 0 to 30, not 99" in capsys.readouterr().err
    assert main(["offsets", "items", *data, "--set", "nonsense"]) == 2
    assert main(["offsets", "items", *data, "--reset"]) == 0
    assert written.reader().newest.offsets == {topic: {"0": 0}}
