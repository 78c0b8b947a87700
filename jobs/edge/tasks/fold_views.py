"""Fold the parcels of all views of a job in one task.

parcels of all views ─► by view: FoldTask ─► files of this view
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from jobs.edge.process.failpoints import failpoint
from jobs.edge.rows.weighted_rows import TARGET, take_batches
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
            found = take_batches(batches, self.folds[0].bytes_max)
            if found is None:
                yield too_large_batch()
                return
            for fold, own in zip(self.folds, self._sort(found), strict=True):
                failpoint("fold_task")  # also between two views
                if own:
                    yield from fold.fold_found(own)

    def _sort(self, found: list[pa.RecordBatch]) -> list[list[pa.RecordBatch]]:
        """Return the parcels of each view; reports are among those of the first."""
        parcels: list[list[pa.RecordBatch]] = [[] for _ in self.folds]
        for batch in found:
            for row, target in enumerate(batch.column(TARGET).to_pylist()):
                parcels[target // self.targets].append(batch.slice(row, 1))
        return parcels
