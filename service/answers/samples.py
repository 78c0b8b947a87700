"""Samples: the newest messages of a topic, for somebody who writes a job spec.

    connection of the operator's, topics ──► a consumer without a group, a few offsets from each
                                             end ──► the newest of them, bounded in all

One look at a time, and the same look again within some seconds is answered from memory. A broker
that does not answer costs the one who asked some seconds, and nobody else.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from schemas.limits import (
    SAMPLE_BYTES_MAX,
    SAMPLE_KEPT_SECONDS,
    SAMPLE_MESSAGES_MAX,
    SAMPLE_PARTITIONS_MAX,
    SAMPLE_SECONDS_MAX,
)
from schemas.spec.broker_address import AddressRefused, require_allowed_brokers
from schemas.spec.connections import Connections, kafka_python_options
from service.problems import Problem

log = logging.getLogger(__name__)

_FETCH_BYTES = 256 * 1024
_POLL_MS = 500
_NAMED = 5  # topics, where the one that is asked for is not there


@dataclass(frozen=True, slots=True)
class Sample:
    """One message, as it is in its topic."""

    topic: str
    partition: int
    offset: int
    time_ms: int | None
    key: bytes | None
    value: bytes | None  # None: a tombstone


class Samples:
    """Of all topics that the operator's connections reach."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._looking = threading.Lock()
        self._kept: dict[tuple[str, tuple[str, ...]], tuple[float, list[Sample]]] = {}

    def newest(self, connection: str, topics: Sequence[str]) -> list[Sample]:
        """The newest messages of some topics, the newest first; a Problem where they cannot be
        had. It waits for the broker, so it is called in a thread."""
        asked = (connection, tuple(topics))
        if not self._looking.acquire(timeout=SAMPLE_SECONDS_MAX):
            detail = "somebody else looks at messages just now; try again in a moment"
            raise Problem("too-many-requests", 429, detail, headers={"Retry-After": "5"})
        try:
            now = time.monotonic()
            self._kept = {
                each: kept
                for each, kept in self._kept.items()
                if now - kept[0] < SAMPLE_KEPT_SECONDS
            }
            if asked not in self._kept:
                self._kept[asked] = (now, self._read(connection, topics))
            return self._kept[asked][1]
        finally:
            self._looking.release()

    def _read(self, connection: str, topics: Sequence[str]) -> list[Sample]:
        options = kafka_python_options(self._connections.named(connection))
        try:
            with closing(_consumer(options)) as consumer:
                require_allowed_brokers(consumer._client.cluster)
                return _newest(consumer, topics)
        except AddressRefused as refused:
            log.warning("connection %s: %s", connection, refused)
            detail = (
                f"the brokers of connection {connection!r} send clients on to an address that none "
                "is let go to; the service's log has it"
            )
            raise Problem("address-refused", 502, detail) from None
        except (KafkaError, OSError, ValueError) as error:
            detail = (
                f"the brokers of connection {connection!r} did not give any message "
                f"({type(error).__name__}): check that they run, and that the topic is there"
            )
            raise Problem("broker-silent", 503, detail) from None


def _consumer(options: dict[str, str | list[str]]) -> Any:
    return KafkaConsumer(
        **options,
        group_id=None,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="latest",
        fetch_max_bytes=_FETCH_BYTES,
        max_partition_fetch_bytes=_FETCH_BYTES,
        max_poll_records=SAMPLE_MESSAGES_MAX,
        request_timeout_ms=int(SAMPLE_SECONDS_MAX * 1_000),
        bootstrap_timeout_ms=int(SAMPLE_SECONDS_MAX * 1_000),
    )


def _unknown(topics: Sequence[str], known: Iterable[str]) -> str:
    """That there is no such topic, and which there are: the nearest ones, or the first."""
    there = sorted(name for name in known if not name.startswith("__"))
    near = [each for topic in topics for each in get_close_matches(topic[:100], there, _NAMED)]
    named = ", ".join(near or there[:_NAMED])
    missing = " or ".join(repr(topic[:100]) for topic in topics)
    told = f"there is no topic {missing} at those brokers"
    return f"{told}; known there: {named}" if named else told


def _newest(consumer: Any, topics: Sequence[str]) -> list[Sample]:
    deadline = time.monotonic() + SAMPLE_SECONDS_MAX
    places = [
        TopicPartition(topic, partition)
        for topic in topics
        for partition in sorted(consumer.partitions_for_topic(topic) or ())
    ][:SAMPLE_PARTITIONS_MAX]
    if not places:
        raise Problem("topic-unknown", 404, _unknown(topics, consumer.topics()))
    ends, begins = consumer.end_offsets(places), consumer.beginning_offsets(places)
    waiting = {place: ends[place] for place in places if ends[place] > begins[place]}
    consumer.assign(list(waiting))
    for place, end in waiting.items():
        consumer.seek(place, max(begins[place], end - SAMPLE_MESSAGES_MAX))
    found: list[Sample] = []
    size = 0
    while waiting and time.monotonic() < deadline and size < SAMPLE_BYTES_MAX:
        for records in consumer.poll(timeout_ms=_POLL_MS).values():
            for record in records:
                size += len(record.value or b"")
                place = (record.topic, record.partition, record.offset)
                found.append(Sample(*place, record.timestamp, record.key, record.value))
        for place in [each for each in waiting if consumer.position(each) >= waiting[each]]:
            del waiting[place]
            consumer.pause(place)
    found.sort(key=lambda each: (each.time_ms or 0, each.offset, each.partition), reverse=True)
    return found[:SAMPLE_MESSAGES_MAX]
