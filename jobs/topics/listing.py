"""List topics with the offsets of their partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka import TopicPartition

from jobs.topics.consumer import make_unknown, open_consumer
from schemas.limits import TOPICS_SHOWN_MAX
from schemas.spec.connections import Connection

Offsets = dict[int, tuple[int, int]]  # by partition: the first offset, and the next


@dataclass(frozen=True, slots=True)
class TopicList:
    """The first topics by name, and the number of all; Kafka's own are left out."""

    topics: Mapping[str, Offsets]
    known: int


def list_topics(connection: Connection) -> TopicList:
    """Return the topics of a connection; raise TopicsUnreadable."""
    with open_consumer(connection) as consumer:
        names = sorted(name for name in consumer.topics() if not name.startswith("__"))
        return TopicList(_read_offsets(consumer, names[:TOPICS_SHOWN_MAX]), len(names))


def read_topic(connection: Connection, name: str) -> Offsets:
    """Return the offsets of one topic; raise TopicsUnreadable, also if there is none."""
    with open_consumer(connection) as consumer:
        found = _read_offsets(consumer, [name])
        if not found[name]:
            raise make_unknown([name], consumer.topics())
        return found[name]


def _read_offsets(consumer: Any, names: Sequence[str]) -> dict[str, Offsets]:
    partitions = {name: sorted(consumer.partitions_for_topic(name) or ()) for name in names}
    wanted = [TopicPartition(name, number) for name, ps in partitions.items() for number in ps]
    if not wanted:
        return {name: {} for name in names}
    starts, ends = consumer.beginning_offsets(wanted), consumer.end_offsets(wanted)
    found: dict[str, Offsets] = {name: {} for name in names}
    for each in wanted:
        found[each.topic][each.partition] = (starts[each], ends[each])
    return found
