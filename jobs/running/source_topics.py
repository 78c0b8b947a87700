"""The source topics of a running job, as the driver watches them between epochs.

A topic that was deleted and created again ends the job. The ends of the topics move its clock, and
so does the progress of a job that writes a topic (`watermark: {from: progress}`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jobs.core.time.followed import FollowedProgress
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.kafka.progress import ProgressReader, open_followed
from jobs.edge.kafka.source import require_same_topics
from schemas.spec.connections import Connections
from schemas.spec.job import JobSpec
from schemas.table.epoch import Offsets, TopicIdentity


@dataclass(slots=True)
class SourceTopics:
    """Connections to the topics; the thread that holds the epoch lock uses them."""

    connections: Connections
    spec: JobSpec
    identities: Mapping[str, TopicIdentity]
    _admin: KafkaAdmin | None = None
    _followed: dict[str, ProgressReader] = field(default_factory=dict)

    def follow(self, spec: JobSpec) -> None:
        """Open the progress of the jobs whose watermarks the spec follows."""
        self._followed = open_followed(self.connections, spec)

    def require_same(self) -> None:
        """Raise SourceChanged if a topic was deleted and created again."""
        require_same_topics(self._connect(), self.identities)

    def read_log_ends(self) -> Offsets:
        """Return the end offsets of the topics at the broker."""
        return read_ends(self._connect(), self.identities)

    def read_followed(self, topic: str) -> FollowedProgress | None:
        """Return new progress of the job that writes a topic."""
        found = self._followed[topic].read()
        if found is None:
            return None
        # Read after it, and with open transactions, so that they cover its results.
        ends = self._connect().end_offsets(topic, read_committed=False)
        return FollowedProgress(found.watermark, found.status == "idle", _texts(ends))

    def close(self) -> None:
        for reader in self._followed.values():
            reader.close()
        if self._admin is not None:
            self._admin.close()

    def _connect(self) -> KafkaAdmin:
        if self._admin is None:
            self._admin = KafkaAdmin.of_sources(self.connections, self.spec)
        return self._admin


def read_ends(admin: KafkaAdmin, topics: Iterable[str]) -> Offsets:
    """Return the end offsets of topics."""
    return {topic: _texts(admin.end_offsets(topic)) for topic in topics}


def _texts(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}
