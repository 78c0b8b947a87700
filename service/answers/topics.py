"""Topics of a connection: partitions, records and rates, for a user who looks for a source.

    a consumer without a group ──► names, partitions, first and next offsets
          the reading before   ──► records per second since then

Readings are kept for some minutes; a second look at a page shows a rate.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka import TopicPartition

from schemas.limits import TOPICS_SHOWN_MAX
from schemas.spec.connections import Connections
from service.answers.samples import open_consumer
from service.problems import Problem

_READING_SECONDS_MIN, _READING_SECONDS_MAX = 1.0, 600.0


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    partition: int
    first: int
    next: int
    rate: float | None  # records per second; None until there are two readings


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    partitions: tuple[PartitionOffsets, ...]

    @property
    def records(self) -> int:
        """The records that the brokers still have, at most: compaction leaves gaps."""
        return sum(each.next - each.first for each in self.partitions)

    @property
    def rate(self) -> float | None:
        known = [each.rate for each in self.partitions if each.rate is not None]
        return sum(known) if known else None


class Topics:
    """The topics of all connections; thread-safe. It blocks: not for the event loop."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = threading.Lock()
        # When, and the next offset, by connection, topic and partition.
        self._readings: dict[tuple[str, str, int], tuple[float, int]] = {}

    def list_topics(self, connection: str) -> tuple[list[TopicInfo], int]:
        """Return the first topics by name, and the number of all; Kafka's own are left out."""
        with open_consumer(self._connections, connection) as consumer:
            names = sorted(name for name in consumer.topics() if not name.startswith("__"))
            shown = names[:TOPICS_SHOWN_MAX]
            partitions = {name: sorted(consumer.partitions_for_topic(name) or ()) for name in shown}
            return self._describe(connection, consumer, partitions), len(names)

    def describe_topic(self, connection: str, name: str) -> TopicInfo:
        """Return one topic; raise a Problem if the brokers do not have it."""
        with open_consumer(self._connections, connection) as consumer:
            known = sorted(consumer.partitions_for_topic(name) or ())
            if not known:
                raise Problem("topic-unknown", 404, f"the brokers have no topic {name[:100]!r}")
            return self._describe(connection, consumer, {name: known})[0]

    def _describe(
        self, connection: str, consumer: object, topics: Mapping[str, Sequence[int]]
    ) -> list[TopicInfo]:
        wanted = [TopicPartition(name, number) for name, ps in topics.items() for number in ps]
        starts = consumer.beginning_offsets(wanted)  # type: ignore[attr-defined]
        ends = consumer.end_offsets(wanted)  # type: ignore[attr-defined]
        return [
            TopicInfo(
                name,
                tuple(
                    PartitionOffsets(
                        number,
                        starts[TopicPartition(name, number)],
                        ends[TopicPartition(name, number)],
                        self._measure(connection, name, number, ends[TopicPartition(name, number)]),
                    )
                    for number in numbers
                ),
            )
            for name, numbers in topics.items()
        ]

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
