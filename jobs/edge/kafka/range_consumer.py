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
from collections.abc import Iterable, Iterator, Mapping, Sequence

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    Message,
)
from confluent_kafka import TopicPartition as Assignment

from jobs.edge.kafka.offset_ranges import OffsetRange
from schemas.limits import (
    KAFKA_READ_SECONDS_MAX,
    RANGE_FETCH_BYTES,
    RANGE_QUEUE_KIB,
    RANGE_RECORDS_AT_ONCE,
)
from schemas.table.epoch import TopicPartition

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
    """Yield the records of a range in order, some at a time; see `read_ranges`."""
    for _, records in read_ranges(connection, (planned,), seconds_max=seconds_max):
        yield records


def read_ranges(
    connection: Mapping[str, str],
    planned: Sequence[OffsetRange],  # of different partitions
    *,
    seconds_max: float | None = None,
) -> Iterator[tuple[OffsetRange, list[Message]]]:
    """Yield the records of each range in order, some at a time; the ranges are read together.

    Offsets without a record are skipped: transaction markers, and records that compaction removed.
    Raises RangeTimedOut if no record comes for `seconds_max`.
    """
    patience = KAFKA_READ_SECONDS_MAX if seconds_max is None else seconds_max
    consumer = _open_consumer(connection)
    unread = {each.topic_partition: each for each in planned}
    positions = {each.topic_partition: each.start for each in planned}
    consumer.assign([Assignment(each.topic, each.partition, each.start) for each in planned])
    try:
        received_at = time.monotonic()
        temporary: KafkaError | None = None
        while unread:
            wanted = sum(each.end - positions[partition] for partition, each in unread.items())
            found = consumer.consume(min(RANGE_RECORDS_AT_ONCE, wanted), _POLL_SECONDS)
            good = [message for message in found if message.error() is None]
            for message in found if len(good) < len(found) else ():
                partition, error = _partition_of(message), message.error()
                if error is None:
                    continue
                if error.code() != KafkaError._PARTITION_EOF:
                    temporary = _require_temporary(error, unread.get(partition, planned[0]))
                elif partition in unread:
                    positions[partition] = max(positions[partition], message.offset() or 0)
            for partition, records in _by_partition(good, planned):
                if partition not in unread:
                    continue
                received_at, each = time.monotonic(), unread[partition]
                positions[partition] = max(positions[partition], (records[-1].offset() or 0) + 1)
                if positions[partition] > each.end:
                    records = [record for record in records if (record.offset() or 0) < each.end]
                if records:
                    yield each, records
            if time.monotonic() - received_at > patience:
                partition, each = next(iter(unread.items()))
                raise RangeTimedOut(
                    f"{each}: nothing came for {patience:.0f} s after offset {positions[partition]}"
                    + (f" ({temporary.str()})" if temporary else "")
                    + "; check that the broker runs: retally doctor"
                )
            for partition in [each for each in unread if positions[each] >= unread[each].end]:
                del unread[partition]
    finally:
        consumer.unassign()


def timestamp_ms(record: Message) -> int | None:
    """Return Kafka's timestamp of a record in epoch milliseconds; None if it has none."""
    kind, stamp = record.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else stamp


def _partition_of(message: Message) -> TopicPartition:
    return TopicPartition(message.topic() or "", message.partition() or 0)


def _by_partition(
    messages: list[Message], planned: Sequence[OffsetRange]
) -> Iterable[tuple[TopicPartition, list[Message]]]:
    """Return the messages of each partition; only several ranges need a check of each."""
    if len(planned) == 1:
        return [(planned[0].topic_partition, messages)] if messages else ()
    found: dict[TopicPartition, list[Message]] = {}
    for message in messages:
        found.setdefault(_partition_of(message), []).append(message)
    return found.items()


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
