"""Decode the ranges of all sources of a job: each by the decode task of its source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from jobs.edge.tasks.body import task_body
from jobs.edge.tasks.decode import DecodeTask


@dataclass(frozen=True, slots=True)
class SourcesDecode:
    """The function of the map stage; a value, so that Spark can send it to the workers."""

    tasks: tuple[DecodeTask, ...]  # one for each source; all have all ranges

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with task_body():
            yield from self.run(batches)

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows and the report of each range; `batches` have the ranges' numbers."""
        ordinals = [ordinal for batch in batches for ordinal in batch.column(0).to_pylist()]
        for task in self.tasks:
            own = [each for each in ordinals if task.ranges[each].source == task.source]
            if own:
                yield from task.decode_ranges(own)
