"""Tasks that make parcels: each takes its own parcels, and passes all others on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from jobs.edge.tasks.body import task_body


class ParcelTask(Protocol):
    """A task from parcels to parcels; a value, so that Spark can send it to the workers."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True)
class TaskChain:
    """The function of a stage of several such tasks, none of which needs parcels of another."""

    tasks: tuple[ParcelTask, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with task_body():
            yield from self.run(batches)

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task in self.tasks:
            batches = task.run(batches)
        yield from batches
