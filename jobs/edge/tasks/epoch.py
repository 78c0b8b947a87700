"""Decode and fold in one task, for epochs with work for one fold task only.

    planned ranges ─► DecodeTask ─► parcels ─► FoldTask ─► files of the epoch, reports

It saves a stage of Spark, its shuffle and a second worker: most of the time of a small epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from jobs.edge.tasks.decode import DecodeTask
from jobs.edge.tasks.fold import FoldTask


@dataclass(frozen=True, slots=True)
class EpochTask:
    """The function of the only stage; a value, so that Spark can send it to the worker."""

    decode: DecodeTask
    fold: FoldTask

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.fold(self.decode.decode_ranges(batches))
