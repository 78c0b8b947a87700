"""Read, send and find single records of a topic, for repairs by hand.

Jobs read with jobs.edge.kafka.range_consumer and publish with jobs.edge.publisher; a single record
is sent with kafka-python, as all that is not bulk.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from kafka import KafkaProducer
from kafka.errors import KafkaError

from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.kafka.range_consumer import RangeUnreadable, read_records
from jobs.edge.kafka.records import Record
from schemas.limits import KAFKA_ADMIN_SECONDS_MAX, MESSAGE_BYTES_MAX
from schemas.spec.connections import kafka_python_options

REPLAY_HEADER = "retally-replay"
_TIMEOUT_MS = int(KAFKA_ADMIN_SECONDS_MAX * 1_000)
_PRODUCER_OPTIONS = {
    "acks": "all",
    "enable_idempotence": True,
    "bootstrap_timeout_ms": _TIMEOUT_MS,
    "max_block_ms": _TIMEOUT_MS,
    "request_timeout_ms": _TIMEOUT_MS // 2,
    "delivery_timeout_ms": _TIMEOUT_MS,
    "max_request_size": MESSAGE_BYTES_MAX + 2**16,  # the topic's own limit may be lower
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
    where = f"the message was not sent to {topic}/{partition}"
    try:
        with closing(
            KafkaProducer(**kafka_python_options(connection), **_PRODUCER_OPTIONS)
        ) as sender:
            headers = [(REPLAY_HEADER, token.encode())]
            sent = sender.send(topic, value, key=key, partition=partition, headers=headers)
            return int(sent.get(KAFKA_ADMIN_SECONDS_MAX + 5).offset)
    except (KafkaError, ValueError) as problem:
        raise NotSent(f"{where}: {problem or type(problem).__name__}") from problem
