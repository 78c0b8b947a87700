"""Kafka ranges: the records of one range of a partition, read where they are decoded.

    offsets that Spark's Kafka source planned ──► a consumer in the worker ──► lists of records

Spark plans and limits what a micro-batch reads, but its rows take a long way to Python: the JVM's
records, Spark's rows, Arrow, a socket. A consumer in the worker is the short way, in a third of
the time. It reads exactly the planned offsets, read_committed, or says why it cannot.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from jobs.edge.kafka.ranges import OffsetRange
from schemas.limits import (
    KAFKA_READ_SECONDS_MAX,
    RANGE_FETCH_BYTES,
    RANGE_QUEUE_KIB,
    RANGE_RECORDS_AT_ONCE,
)

_FETCHING: dict[str, str | int | bool] = {
    "group.id": "retally-ranges",  # asked for, and never joined or committed to
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    # What was fetched behind the end of a range is thrown away, so not much is fetched ahead.
    "max.partition.fetch.bytes": RANGE_FETCH_BYTES,
    "queued.max.messages.kbytes": RANGE_QUEUE_KIB,
    "fetch.queue.backoff.ms": 1,
    "fetch.wait.max.ms": 10,
    "log_level": 0,  # what matters comes as an error of a read
}
_POLL_SECONDS = 0.02
_PASSING = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError._RESOLVE,
)
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)

_consumers: dict[tuple[object, ...], Consumer] = {}


class RangeUnreadable(Exception):
    """The planned records cannot be had; the message says which, why, and what to do."""


class RangeSilent(RangeUnreadable):
    """They did not come in time; they may when the broker is there again."""


def records_of(
    connection: Mapping[str, str], planned: OffsetRange, *, seconds_max: float | None = None
) -> Iterator[list[Message]]:
    """The records of a range in their order, some at a time. Offsets without a record (markers of
    transactions, what compaction removed) are passed over."""
    patience = KAFKA_READ_SECONDS_MAX if seconds_max is None else seconds_max
    consumer = _consumer(connection)
    consumer.assign([TopicPartition(planned.topic, planned.partition, planned.start)])
    try:
        position = planned.start
        heard = time.monotonic()
        trouble: KafkaError | None = None
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
                    trouble = _passing(error, planned)
            if records:
                heard = time.monotonic()
                position = max(position, (records[-1].offset() or 0) + 1)
                if position > planned.end:
                    records = [each for each in records if (each.offset() or 0) < planned.end]
                if records:
                    yield records
            elif time.monotonic() - heard > patience:
                raise RangeSilent(
                    f"{planned}: nothing came for {patience:.0f} s after offset {position}"
                    + (f" ({trouble.str()})" if trouble else "")
                    + "; is the broker there? see retally doctor"
                )
    finally:
        consumer.unassign()


def _passing(error: KafkaError, planned: OffsetRange) -> KafkaError:
    """An error that may pass; any other one is raised in our words."""
    if error.code() in _PASSING:
        return error
    if error.code() in _GONE:
        raise RangeUnreadable(
            f"{planned}: the records from offset {planned.start} on are no longer there; retention "
            "has removed them, or it is another topic. Start a new job, or raise the topic's "
            "retention and rewind"
        )
    raise RangeUnreadable(f"{planned}: {error.str()}")


def _consumer(connection: Mapping[str, str]) -> Consumer:
    """One consumer for each connection and process; a fork has none of its parent's."""
    key = (os.getpid(), *sorted(connection.items()))
    consumer = _consumers.get(key)
    if consumer is None:
        consumer = _consumers[key] = Consumer({**connection, **_FETCHING}, error_cb=lambda _: None)
    return consumer
