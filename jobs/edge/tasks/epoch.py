"""Decode and fold in one task, for epochs with work for one fold task only.

    numbers of the ranges ─► DecodeTasks ─► parcels ─► FoldTask ─► files of the epoch, reports
                                  └─► DedupeTask, JoinTask ─┘   if the job has them

Such an epoch is one stage over an RDD. It saves a shuffle, a second worker, and the JVM's planning
of SQL: more than half of the processor time of a small epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from jobs.edge.tasks.fold_views import ViewsFold
from jobs.edge.tasks.parcel_task import TaskChain
from schemas.types.arrow_values import to_list


@dataclass(frozen=True, slots=True)
class EpochTask:
    """The function of the only stage; a value, so that Spark can send it to the worker."""

    chain: TaskChain
    fold: ViewsFold

    def __call__(self, numbers: Iterable[int]) -> Iterator[tuple[str, bytes]]:
        """Yield the reports of all ranges and of the fold, each with its kind."""
        ranges = pa.RecordBatch.from_pydict({"id": list(numbers)})
        for batch in self.fold(self.chain.run(iter([ranges]))):
            yield from zip(*map(to_list, batch.columns), strict=True)
