"""A message of the quarantine is sent again once, whatever is killed in between."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kafka import KafkaProducer

from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.kafka.single_records import REPLAY_HEADER
from jobs.edge.process.broker import Broker
from jobs.edge.table.epoch_files import Reject
from jobs.edge.table.file_writer import file_name, write_file
from jobs.edge.table.job_specs import write_specs
from jobs.reading.parts import QUARANTINE
from schemas.spec.file import load_spec, spec_text
from schemas.types.sql_types import INT, STRING
from tests.support.command.warm_command import warm_commands
from tests.support.sampling import quick
from tests.support.tables.written_table import WrittenTable
from tests.support.topics import committed_records

QUERY = "SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name"
BAD = b'{"type": "INSERT", "data": [{"name": "a", "v": "x"}]}'
GOOD = json.dumps(
    {"type": "INSERT", "database": "d", "table": "t", "es": 1, "data": [{"name": "a", "v": "7"}]}
)


class Refusing:
    """A job's table with one refused message, the second record of partition 1."""

    def __init__(self, data: Path, broker: Broker, topic: str, kept: int = len(GOOD)) -> None:
        """`kept`: the bytes that the quarantine has of a message that fits by now."""
        self.broker, self.topic, self.data = broker, topic, data
        with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
            admin.ensure_topic(topic, 2, {})
        producer = KafkaProducer(bootstrap_servers=broker.address)
        producer.send(topic, GOOD.encode(), partition=1)
        producer.send(topic, BAD, key=b"k", partition=1)
        producer.flush()
        producer.close()
        written = WrittenTable(data, QUERY, {"name": STRING, "v": INT})
        spec = load_spec(written.place.spec).document() | {"source": {"topic": topic}}
        written.place.spec.write_text(spec_text(load_spec(spec)))
        rejects = [
            Reject(topic, 1, 1, None, "v: 'x' is not a valid INT", "$", BAD, len(BAD)),
            Reject(topic, 1, 0, None, "no column v", "$", GOOD.encode()[:kept], len(GOOD)),
        ]
        table = written.layout.quarantine_table(0, rejects)
        name = file_name(QUARANTINE, 0, uuid4().hex, "w")
        added = write_file(written.place.table, name, table)
        written.table.commit([added], uuid=uuid4().hex, what="a refused message")
        self.place, self.fixed = written.place, data / "fixed.json"
        self.id = f"0-{topic}-1-1"
        self.fitting_id = f"0-{topic}-1-0"  # the spec has changed since

    def replay(
        self, message: str | None, *arguments: str, failpoints: str = ""
    ) -> subprocess.CompletedProcess[str]:
        words = ["quarantine", "items", "--data", str(self.data), "--brokers", self.broker.address]
        words += ["--json", "--replay", self.id]
        if message is not None:
            self.fixed.write_text(message)
            words += ["--message", str(self.fixed)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RETALLY_FAILPOINTS", failpoints)
            return warm_commands.run(*words, *arguments)

    def add_views(self, **queries: str) -> None:
        """Give the job these views; all of them see its quarantine."""
        views = {name: {"query": query} for name, query in queries.items()}
        spec = load_spec(self.place.spec).document() | {"views": views}
        write_specs(load_spec(spec), self.place)

    def sent(self) -> list[Any]:
        """The records of partition 1 that were sent again."""
        records = committed_records(self.broker.address, self.topic)
        return [record for record in records if REPLAY_HEADER in dict(record.headers)]


@pytest.fixture
def refusing(tmp_path: Path, broker: Broker, topic: str) -> Iterator[Refusing]:
    yield Refusing(tmp_path, broker, topic)


def test_a_fixed_message_has_the_key_and_the_partition_of_the_refused_one(
    refusing: Refusing,
) -> None:
    unfit = refusing.replay(None)
    assert unfit.returncode == 1
    assert "would refuse that message again" in unfit.stderr
    done = refusing.replay(GOOD)
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    (record,) = refusing.sent()
    assert (record.partition, record.offset, record.key) == (1, output["offset"], b"k")
    assert record.value.decode() == GOOD
    twice = refusing.replay(GOOD)
    assert twice.returncode == 1
    assert "sent again already" in twice.stderr
    assert refusing.replay(GOOD, "--again").returncode == 0
    assert len(refusing.sent()) == 2


def test_several_messages_are_sent_by_one_command_and_a_refused_one_stops_none(
    refusing: Refusing,
) -> None:
    done = refusing.replay(None, "--replay", refusing.fitting_id, "--replay", "9-x-0-0")
    assert done.returncode == 1
    assert "2 of 3 messages were not sent" in done.stderr
    output = json.loads(done.stdout)
    (record,) = refusing.sent()
    assert record.value.decode() == GOOD
    assert [(each["id"], each["offset"]) for each in output["sent"]] == [
        (refusing.fitting_id, record.offset)
    ]
    assert list(output["refused"]) == [refusing.id, "9-x-0-0"]
    assert "would refuse that message again" in output["refused"][refusing.id]
    twice = refusing.replay(None, "--replay", refusing.fitting_id)
    assert "sent again already" in json.loads(twice.stdout)["refused"][refusing.fitting_id]
    assert refusing.replay(GOOD, "--replay", refusing.fitting_id).returncode == 2
    assert len(refusing.sent()) == 1


def test_a_message_of_which_only_the_start_is_kept_is_sent_whole(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    refusing = Refusing(tmp_path, broker, topic, kept=9)
    refusing.replay(None, "--replay", refusing.fitting_id)
    assert [record.value.decode() for record in refusing.sent()] == [GOOD]


def test_a_message_that_another_view_cannot_decode_is_not_sent(refusing: Refusing) -> None:
    refusing.add_views(times="SELECT name, COUNT(*) AS n FROM t GROUP BY name")
    unfit = refusing.replay(None, "--view", "times")
    assert unfit.returncode == 1
    assert "would refuse that message again: 'x' is not a valid INT" in unfit.stderr
    assert refusing.sent() == []
    assert refusing.replay(GOOD, "--view", "times").returncode == 0


@pytest.mark.parametrize(
    ("point", "sent"), quick([("replay_noted", 0), ("replay_sent", 1)], [("replay_sent", 1)])
)
def test_a_killed_sending_is_found_again_and_not_repeated(
    refusing: Refusing, point: str, sent: int
) -> None:
    killed = refusing.replay(GOOD, failpoints=f"{point}=kill")
    assert killed.returncode == -signal.SIGKILL
    assert len(refusing.sent()) == sent
    after = refusing.replay(GOOD)
    assert after.returncode == (1 if sent else 0), after.stderr
    assert len(refusing.sent()) == 1
    assert refusing.replay(GOOD).returncode == 1
    assert len(refusing.sent()) == 1
