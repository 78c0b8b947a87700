"""Backfill: the shadow job of changed views reads the topics up to the offsets of the job.

    first offsets of the job ──► epochs of at most minibatch.max_rows records ──► its newest offsets

It plans its epochs itself, because a stream of Spark would read beyond these offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.kafka.offset_ranges import cut_ends
from jobs.edge.kafka.source import has_reached
from jobs.edge.publisher.job_publisher import JobPublisher
from jobs.running.job import Job
from jobs.running.maintenance import Maintenance
from jobs.running.pipeline import Pipeline
from jobs.running.source_query import SourceQuery
from jobs.running.source_topics import SourceTopics
from schemas.table.epoch import Offsets


@dataclass(slots=True)
class Backfill(Job):
    """A job that reads up to fixed offsets and then ends."""

    ends: Offsets = field(default_factory=dict)

    def _drive(
        self,
        source: SourceQuery,
        pipeline: Pipeline,
        topics: SourceTopics,
        starts: Offsets,
        goal: Offsets,
        admin: KafkaAdmin,
        publisher: JobPublisher | None,
        maintenance: Maintenance,
    ) -> None:
        records = self.spec.minibatch.max_rows
        assert records is not None
        while not self._stop.is_set() and not has_reached(pipeline.newest.offsets, self.ends):
            pipeline.run_epoch(cut_ends(pipeline.newest.offsets, self.ends, records))
            maintenance.work(None)
