"""Topics of a connection: partitions, records and rates, for a user who looks for a source.

    a consumer without a group ──► names, partitions, first and next offsets
          the reading before   ──► records per second since then

Readings are kept for some minutes; a second look at a page shows a rate.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from jobs.topics.consumer import Offsets, TopicsUnreadable, list_topics, open_consumer, read_topic
from schemas.documents.answers import Topic, TopicPartition
from schemas.spec.connections import Connection, Connections, UnknownConnectionError
from service.answers.samples import make_topics_problem
from service.problems import Problem

_READING_SECONDS_MIN, _READING_SECONDS_MAX = 1.0, 600.0


class Topics:
    """The topics of all connections; thread-safe. It blocks: not for the event loop."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = threading.Lock()
        # When, and the next offset, by connection, topic and partition.
        self._readings: dict[tuple[str, str, int], tuple[float, int]] = {}

    def list_topics(self, connection: str, part: str = "") -> tuple[list[Topic], int]:
        """Return the first topics with `part` in their name, by name, and the number of all."""
        with self._lookup(connection) as found:
            listed = list_topics(found, part)
        topics = listed.topics.items()
        return [self._describe(connection, name, each) for name, each in topics], listed.known

    def describe_topic(self, connection: str, name: str) -> Topic:
        """Return one topic; raise a Problem if the brokers do not have it."""
        with self._lookup(connection) as found:
            offsets = read_topic(found, name)
        return self._describe(connection, name, offsets)

    def measure_answer(self, connection: str) -> float:
        """Return the seconds until the brokers answered; raise a Problem if they did not."""
        began = time.monotonic()
        with self._lookup(connection) as found, open_consumer(found):
            return time.monotonic() - began

    @contextmanager
    def _lookup(self, connection: str) -> Iterator[Connection]:
        """Yield a connection; raise a Problem if there is none, or its brokers are unreadable."""
        try:
            yield self._connections.lookup(connection)
        except UnknownConnectionError as error:
            raise Problem("not-found", str(error)) from None
        except TopicsUnreadable as error:
            raise make_topics_problem(connection, error) from None

    def _describe(self, connection: str, name: str, offsets: Offsets) -> Topic:
        partitions = {
            str(number): TopicPartition(first, end, self._measure(connection, name, number, end))
            for number, (first, end) in offsets.items()
        }
        records = sum(each.next - each.first for each in partitions.values())
        rates = [each.rate for each in partitions.values() if each.rate is not None]
        return Topic(name, records, sum(rates) if rates else None, partitions)

    def _measure(self, connection: str, name: str, number: int, end: int) -> float | None:
        """Return the rate since the reading before, and remember this one."""
        partition_key, now = (connection, name, number), time.monotonic()
        with self._lock:
            before = self._readings.get(partition_key)
            if before is None or not 0 <= now - before[0] <= _READING_SECONDS_MAX:
                self._readings[partition_key] = (now, end)
                return None
            passed = now - before[0]
            if passed < _READING_SECONDS_MIN:
                return None
            self._readings[partition_key] = (now, end)
            return max(0, end - before[1]) / passed
