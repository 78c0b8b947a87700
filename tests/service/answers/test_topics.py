"""Topics: what the brokers have, and how fast it grows."""

from __future__ import annotations

import pytest

from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from schemas.spec.connections import load_connections
from service.answers import topics as module
from service.answers.topics import Topics
from service.problems import Problem
from tests.support.jobs.running_job import produce


def test_topics_have_their_partitions_records_and_rates(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_READING_SECONDS_MIN", 0.0)
    with KafkaAdmin({"bootstrap_servers": broker.address}) as admin:
        admin.ensure_topic(topic, 2, {})
    produce(broker.address, topic, [(0, b"a"), (1, b"b"), (1, b"c")])
    topics = Topics(load_connections(None, broker.address))
    listed, known = topics.list_topics("default")
    (found,) = [each for each in listed if each.name == topic]
    assert known >= len(listed) and not any(each.name.startswith("__") for each in listed)
    assert [(number, each.first, each.next) for number, each in found.partitions.items()] == [
        ("0", 0, 1),
        ("1", 0, 2),
    ]
    assert (found.records, found.rate) == (3, None)
    produce(broker.address, topic, [(0, b"d"), (0, b"e")])
    again = topics.describe_topic("default", topic)
    assert again.records == 5
    first, second = again.partitions.values()
    assert first.rate is not None and first.rate > 0 and second.rate == 0


def test_a_topic_that_is_not_there_is_unknown(broker: Broker) -> None:
    topics = Topics(load_connections(None, broker.address))
    with pytest.raises(Problem, match="have no topic 'none-such'"):
        topics.describe_topic("default", "none-such")


def test_brokers_that_are_away_are_said_to_be() -> None:
    topics = Topics(load_connections(None, "127.0.0.1:9"))
    with pytest.raises(Problem, match="did not answer"):
        topics.list_topics("default")
