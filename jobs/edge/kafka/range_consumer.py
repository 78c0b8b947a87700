"""Read the records of one range of a partition, in the worker that decodes them.

    offsets that Spark's Kafka source planned ──► a consumer in the worker ──► arrays of records

Spark plans and limits a micro-batch, but Spark does not read its records: they would pass through
the JVM, Spark's rows, Arrow and a socket before Python gets them. A consumer in the worker takes a
third of the time. It reads exactly the planned offsets with read_committed, or raises
RangeUnreadable.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as Assignment

from jobs.edge.kafka.array_client import ArrayClient, can_read_arrays
from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.kafka.records import PollResult, Problem, Records
from schemas import limits
from schemas.table.epoch import TopicPartition


class MessageClient:
    """Reads records as objects of Python, with their headers."""

    def __init__(self, options: Mapping[str, str | int | bool]) -> None:
        self._consumer = Consumer(dict(options), error_cb=lambda _: None)

    def assign(self, planned: Sequence[OffsetRange]) -> None:
        self._consumer.assign(
            [Assignment(each.topic, each.partition, each.start) for each in planned]
        )

    def unassign(self) -> None:
        self._consumer.unassign()

    def poll(self, count: int, seconds: float) -> PollResult:
        found: dict[TopicPartition, list[Message]] = {}
        problems = []
        for message in self._consumer.consume(count, seconds):
            partition = TopicPartition(message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is None:
                found.setdefault(partition, []).append(message)
            else:
                problems.append(Problem(partition, error, message.offset() or 0))
        return PollResult([(each, Records.of(some)) for each, some in found.items()], problems)


_CONSUMER_OPTIONS: dict[str, str | int | bool] = {
    "group.id": "retally-ranges",  # librdkafka requires a group; nothing joins it or commits
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    # The consumer throws away records after the end of a range, so it fetches little ahead.
    "max.partition.fetch.bytes": limits.RANGE_FETCH_BYTES,
    "queued.max.messages.kbytes": limits.RANGE_QUEUE_KIB,
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

RangeClient = ArrayClient | MessageClient
_clients: dict[tuple[object, ...], RangeClient] = {}


class RangeUnreadable(Exception):
    """The planned records cannot be read; the message names them, the cause, and what to do."""


class RangeTimedOut(RangeUnreadable):
    """The planned records did not come in time; a later attempt may succeed."""


def read_records(
    connection: Mapping[str, str], planned: OffsetRange, *, seconds_max: float | None = None
) -> Iterator[Records]:
    """Yield the records of a range with their headers, in order, some at a time."""
    client = _open_client(connection, MessageClient)
    for _, records in _read(client, (planned,), seconds_max):
        yield records


def read_ranges(
    connection: Mapping[str, str],
    planned: Sequence[OffsetRange],  # of different partitions
    *,
    seconds_max: float | None = None,
) -> Iterator[tuple[OffsetRange, Records]]:
    """Yield the records of each range in order, some at a time; the ranges are read together.

    Offsets without a record are skipped: transaction markers, and records that compaction removed.
    Raises RangeTimedOut if no record comes for `seconds_max`.
    """
    client = _open_client(connection, ArrayClient if can_read_arrays() else MessageClient)
    yield from _read(client, planned, seconds_max)


def _read(
    client: RangeClient, planned: Sequence[OffsetRange], seconds_max: float | None
) -> Iterator[tuple[OffsetRange, Records]]:
    patience = limits.KAFKA_READ_SECONDS_MAX if seconds_max is None else seconds_max
    unread = {each.topic_partition: each for each in planned}
    positions = {each.topic_partition: each.start for each in planned}
    client.assign(planned)
    try:
        received_at = time.monotonic()
        temporary: KafkaError | None = None
        while unread:
            wanted = sum(each.end - positions[partition] for partition, each in unread.items())
            polled = client.poll(min(limits.RANGE_RECORDS_AT_ONCE, wanted), _POLL_SECONDS)
            for partition, error, offset in polled.problems:
                if error.code() != KafkaError._PARTITION_EOF:
                    temporary = _require_temporary(error, unread.get(partition, planned[0]))
                elif partition in unread:
                    positions[partition] = max(positions[partition], offset)
            for partition, records in polled.records:
                if partition not in unread:
                    continue
                each = unread[partition]
                positions[partition] = max(positions[partition], int(records.offsets[-1]) + 1)
                if positions[partition] > each.end:
                    records = records.before(each.end)
                if len(records):
                    yield each, records
                received_at = time.monotonic()  # how long the caller took is no silence
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
        client.unassign()


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


def _open_client(connection: Mapping[str, str], kind: type[RangeClient]) -> RangeClient:
    """Return this process's client for a connection; a fork does not use its parent's."""
    key = (os.getpid(), kind, *sorted(connection.items()))
    client = _clients.get(key)
    if client is None:
        client = _clients[key] = kind({**connection, **_CONSUMER_OPTIONS})
    return client
