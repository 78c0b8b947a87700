"""Samples and lists of topics: what the brokers have, bounded, whatever is in it."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from jobs.topics.consumer import CodecMissing, TopicUnknown, list_topics, read_topic
from jobs.topics.samples import read_newest
from schemas.limits import SAMPLE_BYTES_MAX, SAMPLE_MESSAGES_MAX
from schemas.spec.connections import Connection, load_connections
from tests.support.jobs.running_job import produce


@pytest.fixture
def connection(broker: Broker) -> Connection:
    return load_connections(None, broker.address).lookup("default")


def make(broker: Broker, topic: str, partitions: int) -> None:
    with KafkaAdmin({"bootstrap_servers": broker.address}) as admin:
        admin.ensure_topic(topic, partitions, {})


@pytest.mark.slow
def test_the_newest_messages_of_all_partitions_come_first(
    broker: Broker, connection: Connection, topic: str
) -> None:
    make(broker, topic, 2)
    for number in range(30):
        produce(broker.address, topic, [(number % 2, b"%d" % number)])
    found = read_newest(connection, [topic])
    assert [each.value for each in found] == [b"%d" % n for n in range(29, 19, -1)]
    assert len(found) == SAMPLE_MESSAGES_MAX


def test_large_messages_are_few(broker: Broker, connection: Connection, topic: str) -> None:
    make(broker, topic, 1)
    produce(broker.address, topic, [(0, b"x" * 900_000) for _ in range(8)])
    (found,) = read_newest(connection, [topic])
    assert (found.offset, len(found.value or b""), found.cut) == (7, 900_000, False)


def test_the_newest_message_is_cut_if_it_unpacks_to_more(
    broker: Broker, connection: Connection, topic: str
) -> None:
    make(broker, topic, 1)
    producer = _compressed(broker, "gzip")
    producer.produce(topic, b"x" * 20_000_000, partition=0, key=b"k" * 100_000)
    assert producer.flush(30) == 0
    (found,) = read_newest(connection, [topic])
    assert (len(found.value or b""), found.cut) == (SAMPLE_BYTES_MAX, True)
    assert len(found.key or b"") < 100_000


def test_a_codec_without_a_library_is_named(
    broker: Broker, connection: Connection, topic: str
) -> None:
    make(broker, topic, 1)
    producer = _compressed(broker, "zstd")
    producer.produce(topic, b"x" * 1_000, partition=0)
    assert producer.flush(30) == 0
    with pytest.raises(CodecMissing, match="compressed with zstd, and no library"):
        read_newest(connection, [topic])


def _compressed(broker: Broker, codec: str) -> Producer:
    settings = {"bootstrap.servers": broker.address, "compression.type": codec}
    return Producer({**settings, "message.max.bytes": 1_000_000_000})


def test_an_empty_topic_has_none_and_a_missing_one_is_said_to_be_missing(
    broker: Broker, connection: Connection, topic: str
) -> None:
    make(broker, topic, 3)
    assert read_newest(connection, [topic]) == []
    assert read_topic(connection, topic) == {0: (0, 0), 1: (0, 0), 2: (0, 0)}
    for read in (
        lambda: read_newest(connection, [f"{topic}-missing"]),
        lambda: read_topic(connection, f"{topic}-missing"),
    ):
        with pytest.raises(TopicUnknown, match=f"known topics: {topic}"):
            read()


def test_topics_are_listed_with_the_offsets_of_their_partitions(
    broker: Broker, connection: Connection, topic: str
) -> None:
    make(broker, topic, 2)
    produce(broker.address, topic, [(0, b"a"), (1, b"b"), (1, b"c")])
    found = list_topics(connection)
    assert found.topics[topic] == {0: (0, 1), 1: (0, 2)}
    assert found.known >= len(found.topics)
    assert not any(name.startswith("__") for name in found.topics)
