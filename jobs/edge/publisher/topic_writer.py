"""Write one topic of a publisher: its identity, and the records of its changelog."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from jobs.core.publish.formats import FORMATS, EpochFacts
from jobs.core.publish.protocol import EpochToPublish, Progress, SinkTopic, TopicPosition
from jobs.core.publish.shares import find_positions
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.publisher.records import RecordWriter
from jobs.edge.publisher.session import PublishFailed
from schemas import limits
from schemas.table.changelog import progress_topic, shares_topic
from schemas.table.epoch import TopicIdentity
from schemas.types.sql_types import SqlType

_PROGRESS_CONFIGURATION = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}


class SinkTopicWriter:
    """One topic: its identity, and the records of its changelog.

    A job with one query has one topic. All topics of a publisher have one producer, so that its
    records of an epoch are in one transaction.
    """

    def __init__(self, job: str, sink: SinkTopic) -> None:
        self._job = job
        self._sink = sink
        self._format = FORMATS[sink.format]
        group, output = (
            [(name, SqlType.read(kind)) for name, kind in columns]
            for columns in (sink.columns.group, sink.columns.output)
        )
        self._key_columns = tuple(name for name, _ in group)
        end = sink.columns.window_end
        self.topic, self.view, self.partitions = sink.topic, sink.view, sink.partitions
        self.key_schema = msgspec.UNSET if sink.schemas is None else sink.schemas[0]
        self._schemas = sink.schemas or (0, 0)
        self.identity: TopicIdentity | None = None
        self.writer = RecordWriter(
            self._format,
            group,
            output,
            sink.partitions,
            None if end is None else (end[0], SqlType.parse(end[1])),
            self._schemas[0],
        )

    def require_topics(self, admin: KafkaAdmin) -> None:
        """Create the topic and that of its progress, unless they exist."""
        sink = self._sink
        if self.identity is None and sink.topic_id is None:
            policy = {"cleanup.policy": self._format.cleanup_policy}
            admin.ensure_topic(sink.topic, sink.partitions, policy)
        self.require_same_topic(admin)
        admin.ensure_topic(progress_topic(sink.topic), 1, _PROGRESS_CONFIGURATION)

    def require_shares_topic(self, admin: KafkaAdmin) -> None:
        """Create the topic with the progress of helpers, unless it exists."""
        name, partitions = shares_topic(self.topic), limits.PUBLISHERS_MAX
        admin.ensure_topic(name, partitions, _PROGRESS_CONFIGURATION)

    def require_same_topic(self, admin: KafkaAdmin) -> None:
        """Raise PublishFailed if the topic was deleted, recreated, or has other partitions."""
        sink = self._sink
        found = admin.topic(sink.topic)
        expected = sink.topic_id if self.identity is None else self.identity.id
        hint = "publish to a new topic, or clone the job and let it publish from the start"
        if found is None:
            reason = f"topic {sink.topic!r} does not exist any more: it was deleted"
            raise PublishFailed("publisher-sink-changed", reason, hint)
        if expected is not None and found.id != expected:
            reason = f"topic {sink.topic!r} was deleted and created again"
            raise PublishFailed("publisher-sink-changed", reason, hint)
        if found.partitions != sink.partitions:
            reason = (
                f"topic {sink.topic!r} has {found.partitions} partitions; the job publishes to "
                f"{sink.partitions}, and keys would move to other partitions"
            )
            raise PublishFailed("publisher-sink-changed", reason, hint)
        self.identity = found

    def position(self, shares: Sequence[Progress]) -> TopicPosition:
        """Return how far the topic is, of which `shares` are the publishers."""
        assert self.identity is not None
        own = shares[0]
        at = own.position
        ahead = {each for each in find_positions(shares, self.partitions) if each[:2] > at[:2]}
        return TopicPosition(
            self.identity.id, self.partitions, own.epoch, own.complete, own.uuid, sorted(ahead)
        )

    def facts(self, order: EpochToPublish) -> EpochFacts:
        """Return what the format needs of an epoch."""
        committed = order.committed_ms
        return EpochFacts(
            job=self._job,
            topic=self.topic,
            epoch=order.epoch,
            event_ms=0 if order.watermark is None else order.watermark,
            commit_ms=int(time.time() * 1_000) if committed is None else committed,
            key_columns=self._key_columns,
            schema=self._schemas[1],
        )
