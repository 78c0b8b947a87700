"""Samples: the newest messages of a topic, few and soon, whatever the broker does."""

from __future__ import annotations

import time

import pytest

from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from schemas.limits import SAMPLE_BYTES_MAX, SAMPLE_MESSAGES_MAX, SAMPLE_SECONDS_MAX
from schemas.spec.connections import load_connections
from service.answers.samples import Samples
from service.problems import Problem
from tests.support.jobs.running_job import produce


@pytest.fixture
def samples(broker: Broker) -> Samples:
    return Samples(load_connections(None, broker.address))


def make(broker: Broker, topic: str, partitions: int) -> None:
    with KafkaAdmin({"bootstrap_servers": broker.address}) as admin:
        admin.ensure_topic(topic, partitions, {})


@pytest.mark.slow
def test_the_newest_messages_of_all_partitions_come_first(
    broker: Broker, samples: Samples, topic: str
) -> None:
    make(broker, topic, 2)
    for number in range(30):
        produce(broker.address, topic, [(number % 2, b"%d" % number)])
    found = samples.read_newest("default", [topic])
    assert [each.value for each in found] == [b"%d" % n for n in range(29, 19, -1)]
    assert len(found) == SAMPLE_MESSAGES_MAX


def test_the_same_look_is_answered_from_memory(
    broker: Broker, samples: Samples, topic: str
) -> None:
    make(broker, topic, 1)
    produce(broker.address, topic, [(0, b"first")])
    assert [each.value for each in samples.read_newest("default", [topic])] == [b"first"]
    produce(broker.address, topic, [(0, b"second")])
    began = time.monotonic()
    assert [each.value for each in samples.read_newest("default", [topic])] == [b"first"]
    assert time.monotonic() - began < 0.1


def test_large_messages_are_few(broker: Broker, samples: Samples, topic: str) -> None:
    make(broker, topic, 1)
    produce(broker.address, topic, [(0, b"x" * 900_000) for _ in range(8)])
    found = samples.read_newest("default", [topic])
    assert found
    assert sum(len(each.value or b"") for each in found) < SAMPLE_BYTES_MAX + 900_000


def test_an_empty_topic_has_none_and_a_missing_one_is_said_to_be_missing(
    broker: Broker, samples: Samples, topic: str
) -> None:
    make(broker, topic, 3)
    assert samples.read_newest("default", [topic]) == []
    with pytest.raises(Problem) as missing:
        samples.read_newest("default", [f"{topic}-missing"])
    assert missing.value.code == "topic-unknown"
    assert f"known topics: {topic}" in missing.value.detail


@pytest.mark.slow
def test_brokers_that_do_not_answer_cost_some_seconds_and_no_more() -> None:
    samples = Samples(load_connections(None, "127.0.0.1:9"))
    began = time.monotonic()
    with pytest.raises(Problem) as silent:
        samples.read_newest("default", ["t"])
    assert silent.value.code == "broker-silent"
    assert "127.0.0.1" not in silent.value.detail
    assert time.monotonic() - began < 2 * SAMPLE_SECONDS_MAX
