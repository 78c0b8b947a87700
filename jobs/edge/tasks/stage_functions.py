"""The functions of an epoch's stages; values, so that Spark can send them to the workers.

    numbers of ranges, or parcels ─► TaskChain ─► parcels ─► ViewsFold ─► by view: FoldTask
    └──────────────────────────────── EpochTask ────────────────────────┘     ─► files, reports

A small epoch, with work for one fold task only, is one stage over an RDD. It saves a shuffle, a
second worker, and the JVM's planning of SQL: more than half of the epoch's processor time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from jobs.edge.process.failpoints import failpoint
from jobs.edge.rows.weighted_rows import sort_parcels, take_batches
from jobs.edge.tasks.body import task_body
from jobs.edge.tasks.fold import FoldTask, too_large_batch
from schemas.types.arrow_values import to_list


class ParcelTask(Protocol):
    """A task that takes its own parcels, makes others, and passes on all that are not its own."""

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


@dataclass(frozen=True, slots=True)
class ViewsFold:
    """The function of the fold stage of a job, which has at least one view.

    View `i` has the targets from `i * targets` on.
    """

    folds: tuple[FoldTask, ...]
    targets: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with task_body():
            found = take_batches(batches, self.folds[0].attempt.bytes_max)
            if found is None:
                yield too_large_batch()
                return
            parcels = sort_parcels(found, self.targets)
            for fold in self.folds:
                failpoint("fold_task")  # also between two views
                reports = [] if fold.view else parcels.get(None, [])
                if own := [*reports, *parcels.get(fold.view, ())]:
                    yield from fold.fold_found(own)


@dataclass(frozen=True, slots=True)
class EpochTask:
    """The function of the only stage: what the tasks send is folded by the same task."""

    chain: TaskChain
    fold: ViewsFold

    def __call__(self, numbers: Iterable[int]) -> Iterator[tuple[str, bytes]]:
        """Yield the reports of all ranges and of the fold, each with its kind."""
        ranges = pa.RecordBatch.from_pydict({"id": list(numbers)})
        for batch in self.fold(self.chain.run(iter([ranges]))):
            yield from zip(*map(to_list, batch.columns), strict=True)
