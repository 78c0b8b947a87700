"""Fold the parcels of several views in one task.

parcels of a sender ─► rows ─┬─► FoldTask of the view that sends them ─► files of this view
                             └─► FoldTask of a view of the same rows  ─► files of this view
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from jobs.edge.process.failpoints import failpoint
from jobs.edge.rows.weighted_rows import TARGET, take_batches, unpack_parcels
from jobs.edge.tasks.body import task_body
from jobs.edge.tasks.fold import FoldTask, pass_reports, too_large_batch


@dataclass(frozen=True, slots=True)
class ViewsFold:
    """The function of the fold stage of a job with several views.

    View `i` has the targets from `i * targets` on, if it is its own sender.
    """

    folds: tuple[FoldTask, ...]
    senders: tuple[int, ...]  # of each view, the number of the view whose parcels it takes
    targets: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with task_body():
            found = take_batches(batches, self.folds[0].bytes_max)
            if found is None:
                yield too_large_batch()
                return
            sent: dict[int, list[pa.RecordBatch]] = {}
            for batch in found:
                yield from pass_reports(pa.Table.from_batches([batch]))
                for row, target in enumerate(batch.column(TARGET).to_pylist()):
                    sent.setdefault(target // self.targets, []).append(batch.slice(row, 1))
            for sender, parcels in sent.items():
                rows = unpack_parcels(pa.Table.from_batches(parcels))
                if rows.num_rows:
                    yield from self._fold(sender, rows)

    def _fold(self, sender: int, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Fold the rows of a sender in each view that takes them."""
        for fold, taken in zip(self.folds, self.senders, strict=True):
            if taken == sender:
                failpoint("fold_task")  # also between two views
                yield fold.fold_rows(rows)
