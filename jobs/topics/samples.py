"""Samples: the newest messages of a topic, for a user who writes a job spec.

    a few offsets before each end ──► cut ──► the newest messages, bounded in number and size

A small batch may unpack to gigabytes. The client unpacks a whole batch, so only the memory of the
process bounds that: the service reads samples in a child process.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kafka import TopicPartition

from jobs.topics.consumer import make_unknown, open_consumer
from schemas import limits
from schemas.spec.connections import Connection

_POLL_MS = 500


@dataclass(frozen=True, slots=True)
class Sample:
    """One message of a topic."""

    topic: str
    partition: int
    offset: int
    time_ms: int | None
    key: bytes | None
    value: bytes | None  # None: a tombstone
    cut: bool = False  # the value has only its first bytes


def read_newest(connection: Connection, topics: Sequence[str]) -> list[Sample]:
    """Return the newest messages of some topics, newest first; raise TopicsUnreadable."""
    with open_consumer(connection) as consumer:
        return _keep_newest(_read(consumer, topics))


def _read(consumer: Any, topics: Sequence[str]) -> list[Sample]:
    deadline = time.monotonic() + limits.SAMPLE_SECONDS_MAX
    partitions = [
        TopicPartition(topic, partition)
        for topic in topics
        for partition in sorted(consumer.partitions_for_topic(topic) or ())
    ][: limits.SAMPLE_PARTITIONS_MAX]
    if not partitions:
        raise make_unknown(topics, consumer.topics())
    ends, starts = consumer.end_offsets(partitions), consumer.beginning_offsets(partitions)
    waiting = {each: ends[each] for each in partitions if ends[each] > starts[each]}
    consumer.assign(list(waiting))
    for each, end in waiting.items():
        consumer.seek(each, max(starts[each], end - limits.SAMPLE_MESSAGES_MAX))
    found: list[Sample] = []
    while waiting and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=_POLL_MS).values():
            found += map(_cut, records)
        found = _keep_newest(found)
        for done in [each for each in waiting if consumer.position(each) >= waiting[each]]:
            del waiting[done]
            consumer.pause(done)
    return found


def _cut(record: Any) -> Sample:
    key = None if record.key is None else record.key[: limits.SAMPLE_KEY_BYTES_MAX]
    value = None if record.value is None else record.value[: limits.SAMPLE_BYTES_MAX]
    position = (record.topic, record.partition, record.offset)
    cut = len(record.value or b"") > limits.SAMPLE_BYTES_MAX
    return Sample(*position, record.timestamp, key, value, cut)


def sort_newest(found: Iterable[Sample]) -> list[Sample]:
    """Return samples in order, the newest first."""
    return sorted(
        found, key=lambda each: (each.time_ms or 0, each.offset, each.partition), reverse=True
    )


def _keep_newest(found: Sequence[Sample]) -> list[Sample]:
    """Return the newest samples, newest first: the first, and those that fit beside it."""
    kept: list[Sample] = []
    room = limits.SAMPLE_BYTES_MAX
    for each in sort_newest(found)[: limits.SAMPLE_MESSAGES_MAX]:
        room -= len(each.value or b"")
        if room < 0 and kept:
            break
        kept.append(each)
    return kept
