"""Topics, their identity, and offsets, as a real broker tells them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient

from jobs.edge.kafka.admin import KafkaAdmin, KafkaError, TopicMissing
from jobs.edge.process.broker import Broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
        yield admin


def test_a_topic_is_created_once_and_then_taken_as_it_is(admin: KafkaAdmin, topic: str) -> None:
    assert admin.topic(topic) is None
    made = admin.ensure_topic(topic, 3, {"cleanup.policy": "compact"})
    assert made.partitions == 3
    assert admin.ensure_topic(topic, 5, {}) == made == admin.topic(topic)
    assert admin.cleanup_policy(topic) == "compact"
    admin.ensure_topic(f"{topic}-plain", 1, {})
    assert admin.cleanup_policy(f"{topic}-plain") == "delete", "the broker's own default"


def test_a_topic_that_is_made_again_has_another_id(
    broker: Broker, admin: KafkaAdmin, topic: str
) -> None:
    made = admin.ensure_topic(topic, 1, {})
    client = KafkaAdminClient(bootstrap_servers=[broker.address])
    client.delete_topics([topic])
    client.close()
    deadline = time.monotonic() + 10
    while admin.topic(topic) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert admin.ensure_topic(topic, 1, {}).id != made.id


def test_offsets_end_before_an_open_transaction(
    broker: Broker, admin: KafkaAdmin, topic: str
) -> None:
    admin.ensure_topic(topic, 2, {})
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"a", partition=1)
    producer.flush(10)
    assert admin.end_offsets(topic) == {0: 0, 1: 0}
    assert admin.end_offsets(topic, read_committed=False) == {0: 0, 1: 1}
    producer.commit_transaction(30)
    ended = {0: 0, 1: 2}  # the record, and the end of its transaction, which follows the answer
    deadline = time.monotonic() + 10
    while admin.end_offsets(topic) != ended:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert admin.beginning_offsets(topic) == {0: 0, 1: 0}


def test_a_time_is_the_first_offset_that_is_not_older(
    broker: Broker, admin: KafkaAdmin, topic: str
) -> None:
    admin.ensure_topic(topic, 2, {})
    producer = Producer({"bootstrap.servers": broker.address})
    for timestamp in (1_000, 2_000, 3_000):
        producer.produce(topic, b"a", partition=0, timestamp=timestamp)
        producer.flush(10)
    assert admin.offsets_at(topic, 1_500) == {0: 1, 1: 0}
    assert admin.offsets_at(topic, 3_001) == {0: 3, 1: 0}


def test_a_group_has_the_offsets_that_were_reported_under_it(
    broker: Broker, admin: KafkaAdmin, topic: str
) -> None:
    admin.ensure_topic(topic, 3, {})
    admin.commit_group_offsets(topic, topic, {0: 5, 2: 7})
    client = KafkaAdminClient(bootstrap_servers=[broker.address])
    committed = client.list_group_offsets({topic: None})[topic]
    client.close()
    found = {(each.topic, each.partition): at.offset for each, at in committed.items()}
    assert found == {(topic, 0): 5, (topic, 2): 7}


def test_offsets_of_an_absent_topic_are_an_error_that_names_it(
    admin: KafkaAdmin, topic: str
) -> None:
    with pytest.raises(TopicMissing, match=topic):
        admin.end_offsets(topic)


def test_an_address_where_nobody_listens_fails_within_the_bound() -> None:
    started = time.monotonic()
    with pytest.raises(KafkaError):
        KafkaAdmin({"bootstrap_servers": ["127.0.0.1:1"]}, seconds_max=1)
    assert time.monotonic() - started < 5
