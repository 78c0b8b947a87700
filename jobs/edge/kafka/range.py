"""Read the records of one range of a partition, in the worker that decodes them.

    offsets that Spark's Kafka source planned ──► a consumer in the worker ──► lists of records

Spark plans and limits a micro-batch, but Spark does not read its records: they would pass through
the JVM, Spark's rows, Arrow and a socket before Python gets them. A consumer in the worker takes a
third of the time. It reads exactly the planned offsets with read_committed, or raises
RangeUnreadable.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message, TopicPartition

from jobs.edge.kafka.ranges import OffsetRange
from schemas.limits import (
    KAFKA_READ_SECONDS_MAX,
    RANGE_FETCH_BYTES,
    RANGE_QUEUE_KIB,
    RANGE_RECORDS_AT_ONCE,
)

_CONSUMER_OPTIONS: dict[str, str | int | bool] = {
    "group.id": "retally-ranges",  # librdkafka requires a group; nothing joins it or commits
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    # The consumer throws away records after the end of a range, so it fetches little ahead.
    "max.partition.fetch.bytes": RANGE_FETCH_BYTES,
    "queued.max.messages.kbytes": RANGE_QUEUE_KIB,
    "fetch.queue.backoff.ms": 1,
    "fetch.wait.max.ms": 10,
    "log_level": 0,  # reads return the errors that matter
}
_POLL_SECONDS = 0.02
TEMPORARY = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError._RESOLVE,
)
_RECORDS_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)

_consumers: dict[tuple[object, ...], Consumer] = {}


class RangeUnreadable(Exception):
    """The planned records cannot be read; the message names them, the cause, and what to do."""


class RangeTimedOut(RangeUnreadable):
    """The planned records did not come in time; a later attempt may succeed."""


def read_records(
    connection: Mapping[str, str], planned: OffsetRange, *, seconds_max: float | None = None
) -> Iterator[list[Message]]:
    """Yield the records of a range in order, some at a time.

    Offsets without a record are skipped: transaction markers, and records that compaction removed.
    Raises RangeTimedOut if no record comes for `seconds_max`.
    """
    patience = KAFKA_READ_SECONDS_MAX if seconds_max is None else seconds_max
    consumer = _open_consumer(connection)
    consumer.assign([TopicPartition(planned.topic, planned.partition, planned.start)])
    try:
        position = planned.start
        received_at = time.monotonic()
        temporary: KafkaError | None = None
        while position < planned.end:
            wanted = min(RANGE_RECORDS_AT_ONCE, planned.end - position)
            records: list[Message] = []
            for message in consumer.consume(wanted, _POLL_SECONDS):
                error = message.error()
                if error is None:
                    records.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    position = max(position, message.offset() or 0)
                else:
                    temporary = _require_temporary(error, planned)
            if records:
                received_at = time.monotonic()
                position = max(position, (records[-1].offset() or 0) + 1)
                if position > planned.end:
                    records = [each for each in records if (each.offset() or 0) < planned.end]
                if records:
                    yield records
            elif time.monotonic() - received_at > patience:
                raise RangeTimedOut(
                    f"{planned}: nothing came for {patience:.0f} s after offset {position}"
                    + (f" ({temporary.str()})" if temporary else "")
                    + "; check that the broker runs: retally doctor"
                )
    finally:
        consumer.unassign()


def timestamp_ms(record: Message) -> int | None:
    """Return Kafka's timestamp of a record in epoch milliseconds; None if it has none."""
    kind, stamp = record.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else stamp


def _require_temporary(error: KafkaError, planned: OffsetRange) -> KafkaError:
    """Return an error after which reads may succeed again; raise RangeUnreadable for others."""
    if error.code() in TEMPORARY:
        return error
    if error.code() in _RECORDS_GONE:
        raise RangeUnreadable(
            f"{planned}: the topic no longer has the records from offset {planned.start} on; "
            "retention has removed them, or the topic was created again; start a new job, or raise "
            "the topic's retention and rewind"
        )
    raise RangeUnreadable(f"{planned}: {error.str()}")


def _open_consumer(connection: Mapping[str, str]) -> Consumer:
    """Return this process's consumer for a connection; a fork does not use its parent's."""
    key = (os.getpid(), *sorted(connection.items()))
    consumer = _consumers.get(key)
    if consumer is None:
        options = {**connection, **_CONSUMER_OPTIONS}
        consumer = _consumers[key] = Consumer(options, error_cb=lambda _: None)
    return consumer
