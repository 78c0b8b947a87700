"""Single records of a topic: one is looked at, one is sent, one is found again by its header.

For repairs by hand, one at a time; streams of records have jobs.edge.kafka.range and the publisher.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from jobs.edge.kafka.range import RangeUnreadable, records_of
from jobs.edge.kafka.ranges import OffsetRange
from schemas.limits import KAFKA_ADMIN_SECONDS_MAX

REPLAY_HEADER = "retally-replay"
_SENDING = {
    "acks": "all",
    "enable.idempotence": True,
    "delivery.timeout.ms": int(KAFKA_ADMIN_SECONDS_MAX * 1_000),
    "log_level": 0,
}


class NotSent(Exception):
    """Kafka did not say that it has the record; nobody knows whether it does."""


def record_at(
    connection: Mapping[str, str], topic: str, partition: int, offset: int
) -> Message | None:
    """The record at an offset; None where there is none (any more)."""
    try:
        for records in records_of(
            connection, OffsetRange(topic, partition, offset, offset + 1), seconds_max=10
        ):
            return records[0]
    except RangeUnreadable:
        return None
    return None


def found_again(
    connection: Mapping[str, str], token: str, topic: str, partition: int, since: int, end: int
) -> int | None:
    """The offset of the record whose replay header is a token."""
    for records in records_of(connection, OffsetRange(topic, partition, since, end)):
        for record in records:
            if (REPLAY_HEADER, token.encode()) in (record.headers() or []):
                return record.offset()
    return None


def send(
    connection: Mapping[str, str],
    topic: str,
    partition: int,
    value: bytes,
    *,
    key: bytes | None,
    token: str,
) -> int:
    """The offset that the record has got; NotSent where that is not known."""
    answers: list[tuple[KafkaError | None, int | None]] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        answers.append((error, message.offset()))

    producer = Producer({**connection, **_SENDING}, error_cb=lambda _: None)
    try:
        producer.produce(
            topic, value, key, partition,
            on_delivery=delivered, headers=[(REPLAY_HEADER, token.encode())],
        )  # fmt: skip
        producer.flush(KAFKA_ADMIN_SECONDS_MAX + 5)
    except (KafkaException, BufferError) as problem:
        raise NotSent(f"the message was not sent to {topic}/{partition}: {problem}") from problem
    error, offset = answers[0] if answers else (None, None)
    if error is not None or offset is None:
        why = "no answer came" if error is None else error.str()
        raise NotSent(f"the message was not sent to {topic}/{partition}: {why}")
    return offset
