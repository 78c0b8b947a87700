"""Samples: the newest messages of a topic, for a user who writes a job spec.

    the operator's connection, topics ──► a consumer without a group, a few offsets before each end
                                          ──► the newest messages, bounded in number and size

One read at a time; a repeated read within some seconds is answered from memory. A broker that does
not respond delays only the user who requested it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from schemas.limits import (
    SAMPLE_BYTES_MAX,
    SAMPLE_FETCH_BYTES,
    SAMPLE_KEPT_SECONDS,
    SAMPLE_MESSAGES_MAX,
    SAMPLE_PARTITIONS_MAX,
    SAMPLE_SECONDS_MAX,
)
from schemas.spec.broker_address import AddressRefused, require_allowed_brokers
from schemas.spec.connections import Connections, kafka_python_options
from service.problems import Problem

log = logging.getLogger(__name__)

_POLL_MS = 500
_NAMED = 5  # similar topics in the error for an unknown topic


@dataclass(frozen=True, slots=True)
class Sample:
    """One message of a topic."""

    topic: str
    partition: int
    offset: int
    time_ms: int | None
    key: bytes | None
    value: bytes | None  # None: a tombstone


class Samples:
    """The samples of all topics; thread-safe."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._reading = threading.Lock()
        self._cached: dict[tuple[str, tuple[str, ...]], tuple[float, list[Sample]]] = {}

    def read_newest(self, connection: str, topics: Sequence[str]) -> list[Sample]:
        """Return the newest messages of some topics, newest first.

        Raise a Problem if the brokers do not return them. It blocks: not for the event loop.
        """
        source = (connection, tuple(topics))
        if not self._reading.acquire(timeout=SAMPLE_SECONDS_MAX):
            detail = "another request is reading messages; try again in a moment"
            raise Problem("too-many-requests", 429, detail, headers={"Retry-After": "5"})
        try:
            now = time.monotonic()
            self._cached = {
                each: cached
                for each, cached in self._cached.items()
                if now - cached[0] < SAMPLE_KEPT_SECONDS
            }
            if source not in self._cached:
                self._cached[source] = (now, self._read(connection, topics))
            return self._cached[source][1]
        finally:
            self._reading.release()

    def _read(self, connection: str, topics: Sequence[str]) -> list[Sample]:
        with open_consumer(self._connections, connection) as consumer:
            return _read_newest(consumer, topics)


@contextmanager
def open_consumer(connections: Connections, connection: str) -> Iterator[Any]:
    """Open a consumer of a connection; raise a Problem if its brokers do not answer."""
    options = kafka_python_options(connections.lookup(connection))
    try:
        with closing(_make_consumer(options)) as consumer:
            require_allowed_brokers(consumer._client.cluster)
            yield consumer
    except AddressRefused as refused:
        log.warning("connection %s: %s", connection, refused)
        detail = (
            f"the brokers of connection {connection!r} advertise an address that is not "
            "allowed; the service's log names it"
        )
        raise Problem("address-refused", 502, detail) from None
    except (KafkaError, OSError, ValueError) as error:
        log.warning("connection %s: %s: %s", connection, type(error).__name__, error)
        detail = (
            f"the brokers of connection {connection!r} did not answer: check that they run, and "
            "that the service reaches them (retally doctor)"
        )
        raise Problem("broker-silent", 503, detail) from None


def _make_consumer(options: dict[str, str | list[str]]) -> Any:
    return KafkaConsumer(
        **options,
        group_id=None,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="latest",
        fetch_max_bytes=SAMPLE_FETCH_BYTES,
        max_partition_fetch_bytes=SAMPLE_FETCH_BYTES,
        max_poll_records=SAMPLE_MESSAGES_MAX,
        request_timeout_ms=int(SAMPLE_SECONDS_MAX * 1_000),
        bootstrap_timeout_ms=int(SAMPLE_SECONDS_MAX * 1_000),
    )


def _describe_unknown(topics: Sequence[str], known: Iterable[str]) -> str:
    """Return the error for an unknown topic, with similar names or the first ones."""
    existing = sorted(name for name in known if not name.startswith("__"))
    near = [each for topic in topics for each in get_close_matches(topic[:100], existing, _NAMED)]
    named = ", ".join(near or existing[:_NAMED])
    missing = " or ".join(repr(topic[:100]) for topic in topics)
    text = f"the brokers have no topic {missing}"
    return f"{text}; known topics: {named}" if named else text


def _read_newest(consumer: Any, topics: Sequence[str]) -> list[Sample]:
    deadline = time.monotonic() + SAMPLE_SECONDS_MAX
    partitions = [
        TopicPartition(topic, partition)
        for topic in topics
        for partition in sorted(consumer.partitions_for_topic(topic) or ())
    ][:SAMPLE_PARTITIONS_MAX]
    if not partitions:
        raise Problem("topic-unknown", 404, _describe_unknown(topics, consumer.topics()))
    ends, starts = consumer.end_offsets(partitions), consumer.beginning_offsets(partitions)
    waiting = {each: ends[each] for each in partitions if ends[each] > starts[each]}
    consumer.assign(list(waiting))
    for each, end in waiting.items():
        consumer.seek(each, max(starts[each], end - SAMPLE_MESSAGES_MAX))
    found: list[Sample] = []
    size = 0
    while waiting and time.monotonic() < deadline and size < SAMPLE_BYTES_MAX:
        for records in consumer.poll(timeout_ms=_POLL_MS).values():
            for record in records:
                size += len(record.value or b"")
                position = (record.topic, record.partition, record.offset)
                found.append(Sample(*position, record.timestamp, record.key, record.value))
        for done in [each for each in waiting if consumer.position(each) >= waiting[each]]:
            del waiting[done]
            consumer.pause(done)
    found.sort(key=lambda each: (each.time_ms or 0, each.offset, each.partition), reverse=True)
    return found[:SAMPLE_MESSAGES_MAX]
