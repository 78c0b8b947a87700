"""Fill source topics fast, and read result topics.

stream ──► fill_topic ──► source topic ──► engine ──► result topic ──► fold ──► compare with truth
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.generator import Changing, Tick, pace, steady

# Messages that are produced before a poll; the queue of the client has room for a few times more.
PRODUCE_LINES = 10_000
QUEUE_MESSAGES_MAX = 200_000

CONSUME_MESSAGES = 10_000
POLL_SECONDS = 1.0
TOPIC_SECONDS_MAX = 30.0

# A topic, or topics of PARTITIONS each; batches are numbered over the partitions of all of them.
Topics = str | tuple[str, ...]
PARTITIONS = 4


class Record(NamedTuple):
    """A record of a result topic."""

    key: bytes
    value: bytes | None
    written_ms: int


def create_topic(brokers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": brokers})
    created = admin.create_topics([NewTopic(topic, partitions, 1)])
    created[topic].result(TOPIC_SECONDS_MAX)


def producer(brokers: str, linger_ms: int) -> Producer:
    return Producer(
        {
            "bootstrap.servers": brokers,
            "linger.ms": linger_ms,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": QUEUE_MESSAGES_MAX,
            "queue.buffering.max.kbytes": 1_000_000,
            "acks": "all",
            # A retried batch must not be reordered after the next one.
            "enable.idempotence": True,
        }
    )


def send_steadily(
    client: Producer, topic: Topics, table: Changing, *, rate: int, seconds: float
) -> None:
    """Send the table's next changes at this rate."""
    for tick in pace(steady(table, rate=rate, seconds=seconds)):
        hand_over(client, topic, tick)
    client.flush()


def hand_over(client: Producer, topics: Topics, tick: Tick) -> None:
    for number, batch in enumerate(tick.batches):
        topic, partition = _place_of(topics, number)
        for message in batch:
            client.produce(topic, message, partition=partition)
    client.poll(0)


def _place_of(topics: Topics, number: int) -> tuple[str, int]:
    if isinstance(topics, str):
        return topics, number
    return topics[number // PARTITIONS], number % PARTITIONS


def fill(brokers: str, topics: Topics, batches: Iterable[tuple[int, list[bytes]]]) -> float:
    """Write all batches, each to its partition; return the seconds that it took."""
    begin = time.monotonic()
    client = producer(brokers, linger_ms=20)
    for number, lines in batches:
        topic, partition = _place_of(topics, number)
        for line in lines:
            while True:
                try:
                    client.produce(topic, line, partition=partition)
                    break
                except BufferError:
                    client.poll(0.05)
        client.poll(0)
    client.flush()
    return time.monotonic() - begin


def read_committed(
    brokers: str, topic: str, stop: threading.Event | None = None
) -> Iterator[list[Record]]:
    """Yield lists of the records that a read_committed consumer reads.

    Read from the start to the end of every partition; with `stop`, read from the current end until
    `stop` is set.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": f"bench-{topic}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        partitions = consumer.list_topics(topic, TOPIC_SECONDS_MAX).topics[topic].partitions
        begin = OFFSET_BEGINNING if stop is None else OFFSET_END
        consumer.assign([TopicPartition(topic, at, begin) for at in partitions])
        ended: set[int | None] = set()
        while not (stop.is_set() if stop else len(ended) == len(partitions)):
            # To time arrivals, take the next message, and those that are already there.
            messages = [] if stop is None else [consumer.poll(0.1)]
            messages += consumer.consume(CONSUME_MESSAGES, POLL_SECONDS if stop is None else 0)
            content: list[Record] = []
            for message in messages:
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    content.append(
                        Record(message.key() or b"", message.value(), message.timestamp()[1])
                    )
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                else:
                    raise RuntimeError(f"reading {topic}: {error.str()}")
            if content:
                yield content
    finally:
        consumer.close()
