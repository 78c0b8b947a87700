"""Read, send and find single records of a topic, for repairs by hand.

Jobs read with jobs.edge.kafka.range_consumer and publish with jobs.edge.publisher.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.kafka.range_consumer import RangeUnreadable, read_records
from jobs.edge.kafka.records import Record
from schemas.limits import KAFKA_ADMIN_SECONDS_MAX

REPLAY_HEADER = "retally-replay"
_PRODUCER_OPTIONS = {
    "acks": "all",
    "enable.idempotence": True,
    "delivery.timeout.ms": int(KAFKA_ADMIN_SECONDS_MAX * 1_000),
    "log_level": 0,
}


class NotSent(Exception):
    """Kafka did not confirm the record; whether the topic has it is unknown."""


def read_record(
    connection: Mapping[str, str], topic: str, partition: int, offset: int
) -> Record | None:
    """Return the record at an offset; None if there is none, or none any more."""
    try:
        for records in read_records(
            connection, OffsetRange(topic, partition, offset, offset + 1), seconds_max=10
        ):
            return records[0]
    except RangeUnreadable:
        return None
    return None


def find_replayed(
    connection: Mapping[str, str], token: str, topic: str, partition: int, since: int, end: int
) -> int | None:
    """Return the offset of the record whose replay header is `token`; None if there is none."""
    for records in read_records(connection, OffsetRange(topic, partition, since, end)):
        for record in records:
            if (REPLAY_HEADER, token.encode()) in record.headers:
                return record.offset
    return None


def send_record(
    connection: Mapping[str, str],
    topic: str,
    partition: int,
    value: bytes,
    *,
    key: bytes | None,
    token: str,
) -> int:
    """Send a record and return its offset; raise NotSent if Kafka does not confirm it."""
    deliveries: list[tuple[KafkaError | None, int | None]] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        deliveries.append((error, message.offset()))

    producer = Producer({**connection, **_PRODUCER_OPTIONS}, error_cb=lambda _: None)
    headers: list[tuple[str, str | bytes | None]] = [(REPLAY_HEADER, token.encode())]
    try:
        producer.produce(topic, value, key, partition, on_delivery=on_delivery, headers=headers)
        producer.flush(KAFKA_ADMIN_SECONDS_MAX + 5)
    except (KafkaException, BufferError) as problem:
        raise NotSent(f"the message was not sent to {topic}/{partition}: {problem}") from problem
    error, offset = deliveries[0] if deliveries else (None, None)
    if error is not None or offset is None:
        reason = "the broker did not answer in time" if error is None else error.str()
        raise NotSent(f"the message was not sent to {topic}/{partition}: {reason}")
    return offset
