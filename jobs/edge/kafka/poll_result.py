"""What one poll of a consumer returns, whichever way the consumer reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError

from jobs.edge.kafka.records import Records
from schemas.table.epoch import TopicPartition


class Problem(NamedTuple):
    """An error that a poll returned instead of a record; the end of a partition is one too."""

    partition: TopicPartition
    error: KafkaError
    offset: int


class PollResult(NamedTuple):
    """The records of each partition, and the problems."""

    records: Sequence[tuple[TopicPartition, Records]]
    problems: Sequence[Problem]
