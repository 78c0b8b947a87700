"""Topics of a test: read to their end, by offsets and not by the clock; given more partitions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import NewPartitions

PARTITIONS_SECONDS_MAX = 30


def committed_records(brokers: str, topic: str) -> list[Any]:
    """Return the records that a read_committed consumer reads now, partition by partition."""
    consumer = KafkaConsumer(
        bootstrap_servers=brokers.split(","),
        isolation_level="read_committed",
        enable_auto_commit=False,
    )
    try:
        numbers = consumer.partitions_for_topic(topic)
        if not numbers:
            return []
        partitions = [TopicPartition(topic, number) for number in numbers]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        records: list[Any] = []
        while any(consumer.position(each) < end for each, end in ends.items()):
            for batch in consumer.poll(500).values():
                records += batch
        return records
    finally:
        consumer.close()


@contextmanager
def admin_client(brokers: str) -> Iterator[KafkaAdminClient]:
    """Yield kafka-python's admin client, for changes of a source that the product never makes."""
    client = KafkaAdminClient(bootstrap_servers=brokers.split(","))
    try:
        yield client
    finally:
        client.close()


def add_partitions(brokers: str, topic: str, count: int) -> None:
    """Extend a topic to `count` partitions, and wait until clients see them."""
    consumer = KafkaConsumer(bootstrap_servers=brokers.split(","))
    try:
        with admin_client(brokers) as client:
            client.create_partitions({topic: NewPartitions(count)})
        give_up = time.monotonic() + PARTITIONS_SECONDS_MAX
        while len(consumer.partitions_for_topic(topic) or ()) < count:
            assert time.monotonic() < give_up, f"{topic} does not get {count} partitions"
            time.sleep(0.05)
    finally:
        consumer.close()
