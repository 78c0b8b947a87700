"""Claim the topics of a publisher: each is of one job, one table and its newest publisher.

    <topic>-progress  key <job>      the claim, and the progress of share 0
    <topic>-shares    key <job>/<k>  the progress of helper k, in partition k

A claim is the progress with our generation and writer id. A publisher that starts commits it, and
one that finds a newer one stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import msgspec
from kafka.errors import KafkaError

from jobs.core.publish.protocol import Configuration, Progress
from jobs.core.publish.shares import forget_share_positions, place_progress
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.publisher.pipes import Inbox
from jobs.edge.publisher.session import OutcomeUnknown, PublishFailed, awake_seconds, read_progress
from jobs.edge.publisher.topic_writer import SinkTopicWriter
from schemas import limits

_VISIBLE_PAUSE_SECONDS = 0.02


class Claims:
    """The claims of the topics of one publisher, as committed."""

    def __init__(
        self, configuration: Configuration, topics: Sequence[SinkTopicWriter], inbox: Inbox
    ) -> None:
        self._configuration = configuration
        self._topics = topics
        self._inbox = inbox
        self.writer_id = configuration.writer or uuid4().hex

    def as_ours(self, own: Progress) -> Progress:
        """Return a progress with which this publisher claims its topic."""
        return msgspec.structs.replace(
            own,
            generation=self._configuration.generation,
            table=self._configuration.table,
            writer=self.writer_id,
        )

    def wait_until_visible(self) -> None:
        """Wait until readers see our claim: Kafka answers a commit before it marks partitions."""
        deadline = awake_seconds() + limits.PUBLISH_CALL_SECONDS_MAX
        while any(own.writer != self.writer_id for own in self.read_own_progress()):
            if awake_seconds() > deadline:
                raise OutcomeUnknown("the claim of the topics is not visible in time")
            self._inbox.pause(_VISIBLE_PAUSE_SECONDS)

    def read_shares(self, admin: KafkaAdmin) -> list[list[Progress]]:
        """Return for each topic our progress, and that of the helpers that it had so far.

        Raise PublishFailed if another table or generation publishes.
        """
        configuration = self._configuration
        found = []
        for topic, own in zip(self._topics, self.read_own_progress(), strict=True):
            count = own.publishers or 1
            if max(count, configuration.publishers) > 1:
                topic.require_shares_topic(admin)
            if count > 1 and configuration.delivery == "at_least_once":
                # What they repeat can be recognised. A crash may have left their records unwritten.
                shares = [forget_share_positions(own)]
            else:
                shares = [own, *(self.read_share(topic, share) for share in range(1, count))]
            found.append(shares)
        return found

    def read_share(self, topic: SinkTopicWriter, share: int) -> Progress:
        """Return the progress of a helper."""
        configuration = self._configuration
        name, key = place_progress(configuration.job, topic.topic, share)
        own, _ = read_progress(configuration.connection, name, key, share)
        if own is None:
            raise PublishFailed(
                "publisher-sink-changed",
                f"topic {name!r} lacks the progress of publisher {share}: it was deleted",
                "publish to a new topic, or clone the job and let it publish from the start",
            )
        return own

    def lost(self) -> PublishFailed:
        """Return why a publisher stops whose topics another one has claimed."""
        return PublishFailed(
            "fenced",
            f"another publisher took over topic {self._topics[0].topic!r}",
            "one job is running twice; leave the newer one alone",
        )

    def read_own_progress(self) -> list[Progress]:
        """Return our progress in each topic."""
        return [
            self._require_keys(
                each,
                self._require_view(each, self._require_own(each.topic, *self._read_progress(each))),
            )
            for each in self._topics
        ]

    def _require_keys(self, topic: SinkTopicWriter, own: Progress) -> Progress:
        """Return the progress; raise PublishFailed if the topic's keys have another schema.

        The schema's id is in each key, so rows would get other keys, and other partitions."""
        if own.key_schema != topic.key_schema and own.epoch is not None:
            before, now = (
                "JSON" if each is msgspec.UNSET else f"Avro of schema {each}"
                for each in (own.key_schema, topic.key_schema)
            )
            raise PublishFailed(
                "publisher-sink-changed",
                f"the keys in topic {topic.topic!r} are {before}, and those of the job {now}",
                "restore the schema registry, or give sink.topic another name",
            )
        return msgspec.structs.replace(own, key_schema=topic.key_schema)

    def _require_view(self, topic: SinkTopicWriter, own: Progress) -> Progress:
        """Return the progress of one topic; raise PublishFailed if another view has written it."""
        if own.view in (msgspec.UNSET, "" if topic.view is msgspec.UNSET else topic.view):
            return msgspec.structs.replace(own, view=topic.view)
        raise PublishFailed(
            "publisher-sink-taken",
            f"topic {topic.topic!r} has the changelog of "
            f"{f'view {own.view!r}' if own.view else 'the query'} of this job",
            "give sink.topic another name, because a topic has one writer",
        )

    def _require_own(
        self, topic: str, own: Progress | None, others: dict[str, Progress]
    ) -> Progress:
        """Return our progress in a topic; raise PublishFailed if another table writes it."""
        configuration = self._configuration
        writers = others if own is None else {configuration.job: own, **others}
        strangers = [name for name, each in writers.items() if each.table != configuration.table]
        if strangers:
            raise PublishFailed(
                "publisher-sink-taken",
                f"topic {topic!r} has the changelog of job {strangers[0]!r}, which has another "
                "table",
                "give sink.topic another name, because a topic has one writer",
            )
        if own is None:
            return Progress()
        if own.generation > configuration.generation:
            raise PublishFailed(
                "fenced",
                f"generation {own.generation} of the job publishes to {topic!r}; this is "
                f"generation {configuration.generation}",
                "one job is running twice; leave the newer one alone",
            )
        return own

    def has_successor(self) -> bool:
        """Return whether another publisher has claimed a topic since; True if unknown."""
        try:
            return not self.are_ours()
        except (OutcomeUnknown, KafkaError):
            return True

    def are_ours(self) -> bool:
        """Return whether we are, or our share 0 is, the newest that claimed the topics."""
        claims = [self._read_progress(topic)[0] for topic in self._topics]
        return all(own is not None and own.writer == self.writer_id for own in claims)

    def _read_progress(self, topic: SinkTopicWriter) -> tuple[Progress | None, dict[str, Progress]]:
        configuration = self._configuration
        return read_progress(
            configuration.connection, *place_progress(configuration.job, topic.topic, 0)
        )
