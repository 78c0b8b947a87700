"""A topic read to its end, by its offsets and not by the clock."""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer, TopicPartition


def committed_records(brokers: str, topic: str) -> list[Any]:
    """Return what a read_committed consumer sees now, partition by partition."""
    consumer = KafkaConsumer(
        bootstrap_servers=brokers.split(","),
        isolation_level="read_committed",
        enable_auto_commit=False,
    )
    try:
        numbers = consumer.partitions_for_topic(topic) or ()
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
