"""Fold the parcels of all views of a job in one task.

parcels of all views ─► by view: FoldTask ─► files of this view
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from jobs.edge.process.failpoints import failpoint
from jobs.edge.rows.weighted_rows import sort_parcels, take_batches
from jobs.edge.tasks.body import task_body
from jobs.edge.tasks.fold import FoldTask, too_large_batch


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
