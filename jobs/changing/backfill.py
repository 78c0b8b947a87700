"""Backfill: the shadow job of changed views reads the topics up to the offsets of the job.

    first offsets of the job ──► epochs of at most minibatch.max_rows records ──► its newest offsets

It plans its epochs itself, because a stream of Spark would read beyond these offsets.
"""

from __future__ import annotations

import threading

from jobs.edge.kafka.offset_ranges import cut_ends
from jobs.edge.kafka.source import has_reached
from jobs.running.job import EpochLoop
from jobs.running.maintenance import Maintenance
from jobs.running.pipeline import Pipeline
from schemas.table.epoch import Offsets


def read_up_to(ends: Offsets) -> EpochLoop:
    """Return a loop of epochs that reads up to these offsets."""

    def run(pipeline: Pipeline, maintenance: Maintenance, stop: threading.Event) -> None:
        records = pipeline.spec.minibatch.max_rows
        assert records is not None
        while not stop.is_set() and not has_reached(pipeline.newest.offsets, ends):
            pipeline.run_epoch(cut_ends(pipeline.newest.offsets, ends, records))
            maintenance.work(None)

    return run
