"""Samples of the service: read in a child process, few and soon, whatever the broker does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence

import pytest

from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from jobs.topics.samples import Sample
from schemas.limits import SAMPLE_SECONDS_MAX
from schemas.spec.connections import load_connections
from service.answers.samples import Samples
from service.attempts import Attempts
from service.problems import Problem
from tests.support.jobs.running_job import produce
from tests.support.service.application import spawn_attempt


@pytest.fixture
def attempts() -> Iterator[Attempts]:
    attempts = Attempts(spawn_attempt, at_once=1)
    yield attempts
    attempts.close()


def test_the_same_look_is_answered_from_memory(
    broker: Broker, attempts: Attempts, topic: str
) -> None:
    with KafkaAdmin({"bootstrap_servers": broker.address}) as admin:
        admin.ensure_topic(topic, 1, {})
    samples = Samples(load_connections(None, broker.address), attempts)

    async def look(values: Sequence[bytes]) -> list[bytes | None]:
        produce(broker.address, topic, [(0, value) for value in values])
        return [each.value for each in await samples.read_newest("default", [topic])]

    async def look_twice() -> None:
        assert await look([b"first"]) == [b"first"]
        began = time.monotonic()
        assert await look([b"second"]) == [b"first"]
        assert time.monotonic() - began < 0.1

    asyncio.run(look_twice())


def test_a_topic_and_a_connection_that_are_not_there_are_problems(
    broker: Broker, attempts: Attempts
) -> None:
    assert _refuse(broker.address, attempts, "no-such").code == "topic-unknown"
    assert _refuse(broker.address, attempts, "t", "other").code == "not-found"


@pytest.mark.slow
def test_brokers_that_do_not_answer_cost_some_seconds_and_no_more(attempts: Attempts) -> None:
    began = time.monotonic()
    silent = _refuse("127.0.0.1:9", attempts, "t")
    assert silent.code == "broker-silent"
    assert "127.0.0.1" not in silent.detail
    assert time.monotonic() - began < 2 * SAMPLE_SECONDS_MAX


def _refuse(brokers: str, attempts: Attempts, topic: str, connection: str = "default") -> Problem:
    """Return the problem of a read."""

    async def read() -> list[Sample]:
        samples = Samples(load_connections(None, brokers), attempts)
        return await samples.read_newest(connection, [topic])

    with pytest.raises(Problem) as refused:
        asyncio.run(read())
    return refused.value
