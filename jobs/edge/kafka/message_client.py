"""Read records as objects of Python: for their headers, and where arrays cannot be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as Assignment

from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.kafka.poll_result import PollResult, Problem
from jobs.edge.kafka.records import Records
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
