"""The demo's source as a process, against a broker of its own: killed, and back without a gap."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from jobs.demo.shop import Shop
from jobs.demo.source import make_changes
from jobs.demo.specs import PARTITIONS, SOURCE_TOPIC
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from tests.deploy.deployment import CHECKOUT
from tests.support.service.job_answers import without_moments
from tests.support.service.served import eventually

pytestmark = pytest.mark.broker

SEED, MADE = 3, 5_000


@pytest.mark.slow
def test_a_killed_source_goes_on_where_its_topic_ends(tmp_path: Path) -> None:
    with Broker(tmp_path / "broker") as broker:
        alive = tmp_path / "alive"
        first = _start(broker, alive)
        _until(broker, 200)
        first.kill()
        first.wait()
        assert alive.exists()
        killed_at = _messages(broker)
        second = _start(broker, alive)
        _until(broker, killed_at + 200)
        second.send_signal(signal.SIGTERM)
        assert second.wait(20) == 0
        read = _read(broker)
    made = [
        message for message in islice(make_changes(Shop(SEED, PARTITIONS), {}), MADE) if message
    ]
    for partition in range(PARTITIONS):
        wanted = [message for message in made if message[0] == partition]
        found = read[partition]
        assert found
        assert without_moments(found) == without_moments(wanted[: len(found)])


def _start(broker: Broker, alive: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "jobs.demo.source", "--brokers", broker.address]
    command += ["--seed", str(SEED), "--rate", "200", "--heartbeat", str(alive)]
    return subprocess.Popen(command, cwd=CHECKOUT)


def _messages(broker: Broker) -> int:
    with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
        try:
            return sum(admin.end_offsets(SOURCE_TOPIC).values())
        except LookupError:
            return 0


def _until(broker: Broker, messages: int) -> None:
    eventually(lambda: _messages(broker) >= messages, 60)


def _read(broker: Broker) -> dict[int, list[tuple[int, bytes]]]:
    with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
        ends = admin.end_offsets(SOURCE_TOPIC)
    found: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in ends}
    with closing(KafkaConsumer(bootstrap_servers=broker.address)) as consumer:
        consumer.assign([TopicPartition(SOURCE_TOPIC, partition) for partition in ends])
        consumer.seek_to_beginning()
        while sum(map(len, found.values())) < sum(ends.values()):
            for records in consumer.poll(1_000).values():
                for record in records:
                    found[record.partition].append((record.partition, record.value))
    return found
