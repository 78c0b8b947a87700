"""The embedded broker: it serves, keeps its data, and leaves nobody behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from jobs.edge.process.broker import Broker, BrokerFailed, cluster_id, free_port
from tests.support.sampling import quick

CHECKOUT = Path(__file__).resolve().parents[3]
GONE_SECONDS_MAX = 10
READ_SECONDS_MAX = 20

# A parent that starts the broker and then waits to be killed.
PARENT = """
import sys, time
from pathlib import Path
from jobs.edge.process.broker import Broker
broker = Broker(Path(sys.argv[1])).start()
print(broker.java_pid, flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that a test may stop and kill, unlike the one of the whole run."""
    broker = Broker(tmp_path_factory.mktemp("own-broker"))
    yield broker
    broker.stop()


def create(address: str, topic: str, **settings: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.create_topics([NewTopic(topic, 2, 1, topic_configs=settings)])
    admin.close()


def read(address: str, topic: str, count: int, **settings: object) -> list[bytes]:
    """Up to `count` values, sorted, from the beginning of the topic."""
    consumer = KafkaConsumer(
        topic, bootstrap_servers=address, auto_offset_reset="earliest", **settings
    )
    values: list[bytes] = []
    deadline = time.monotonic() + READ_SECONDS_MAX
    while len(values) < count and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=500).values():
            values += [record.value for record in records]
    consumer.close()
    return sorted(values)


def produce(address: str, topic: str, values: list[bytes]) -> None:
    producer = KafkaProducer(bootstrap_servers=address)
    for value in values:
        producer.send(topic, value)
    producer.flush()
    producer.close()


def await_gone(pid: int) -> bool:
    deadline = time.monotonic() + GONE_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.slow
@pytest.mark.broker
def test_says_ready_with_its_address_and_ends_with_0_on_sigterm(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "jobs.edge.process.broker", "127.0.0.1", "0", str(tmp_path)],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    word, _, address = process.stdout.readline().strip().partition(" ")
    assert word == "ready"
    host, _, port = address.partition(":")
    assert host == "127.0.0.1"
    socket.create_connection((host, int(port)), timeout=5).close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert process.stdout.read() == ""


def test_what_is_produced_is_consumed(broker: Broker, topic: str) -> None:
    create(broker.address, topic)
    produce(broker.address, topic, [b"a", b"b", b"c"])
    assert read(broker.address, topic, 3) == [b"a", b"b", b"c"]


def test_a_topic_nobody_created_is_not_there(broker: Broker, topic: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.address, "message.timeout.ms": 2000, "log_level": 0}
    )
    outcome: list[object] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(20) == 0
    assert outcome[0] is not None
    assert topic not in producer.list_topics(timeout=5).topics


def test_readers_of_committed_see_committed_transactions_only(broker: Broker, topic: str) -> None:
    create(broker.address, topic)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.address, "transactional.id": topic}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"aborted")
    producer.flush(20)
    producer.abort_transaction(20)
    producer.begin_transaction()
    producer.produce(topic, b"committed")
    producer.commit_transaction(20)
    assert read(broker.address, topic, 1, isolation_level="read_committed") == [b"committed"]
    assert read(broker.address, topic, 2) == [b"aborted", b"committed"]


def test_a_message_of_64_mb_passes(broker: Broker, topic: str) -> None:
    create(broker.address, topic)
    size = 64 * 1024 * 1024
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.address, "message.max.bytes": size + 1024}
    )
    outcome: list[object] = []
    producer.produce(topic, bytes(size), on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(60) == 0
    assert outcome == [None]


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.parametrize("end", quick(["stop", "kill"], ["kill"]))
def test_data_and_port_survive_a_restart(own: Broker, topic: str, end: str) -> None:
    own.start()
    address = own.address
    create(address, topic)
    produce(address, topic, [b"before"])
    own.stop() if end == "stop" else own.kill()
    own.start()
    assert own.address == address
    produce(address, topic, [b"later"])
    assert read(address, topic, 2) == [b"before", b"later"]
    own.stop()


@pytest.mark.broker
def test_ends_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    java = int(parent.stdout.readline())
    os.kill(java, 0)  # it runs
    parent.kill()
    parent.wait()
    assert await_gone(java)


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's parent-death signal")
def test_the_jvm_ends_with_a_broker_process_that_was_killed(own: Broker) -> None:
    own.start()
    java = own.java_pid
    with open(f"/proc/{java}/stat") as status:
        starter = int(status.read().rpartition(")")[2].split()[1])
    os.kill(starter, signal.SIGKILL)
    assert await_gone(java)
    own.stop()


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port("127.0.0.1")))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BrokerFailed, match=f"127.0.0.1:{port}: the port is taken"):
            Broker(tmp_path, port=port).start()


def test_a_directory_in_use_is_named(broker: Broker) -> None:
    with pytest.raises(BrokerFailed, match=f"another broker is running on {broker.data}"):
        Broker(broker.data).start()


def test_a_cluster_id_is_never_taken_for_an_option() -> None:
    for first in range(256):
        identity = cluster_id(bytes([first]) + bytes(15))
        assert len(identity) == 22
        assert identity[0].isalpha()
