"""The task of a snapshot: rows of Spark's readers become images of their keys.

    rows of a Spark partition ─► columns of the source ─► images ─► parcels, by bucket of the key
                                        │                    └────► one parcel with the report
                                        └─ a value that does not fit: the report refuses the part

An image of a snapshot has neither a time nor a partition: it is older than every message that the
job reads after it, and says nothing about the partition of its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from jobs.core.formats.registry import MessageRules
from jobs.core.homes import Placement
from jobs.core.plan.bucket import buckets_of
from jobs.core.plan.tree import Plan
from jobs.core.rows.consolidate import RUNNING_BITS, WeightedRows
from jobs.core.rows.dedupe import key_indexes, pack_summary
from jobs.core.rows.key_history import Kind
from jobs.edge.process.failpoints import failpoint
from jobs.edge.rows.evaluated_rows import evaluate_rows
from jobs.edge.rows.range_rows import RangeRows
from jobs.edge.rows.snapshot_columns import SnapshotColumn, SnapshotRefused, read_columns
from jobs.edge.rows.weighted_rows import Parcel, image_parcels, image_schema, report_parcel
from jobs.edge.tasks.body import task_body
from jobs.edge.tasks.decode_inputs import ViewInputs
from jobs.edge.tasks.outbox import Unpack
from jobs.edge.tasks.range_report import RangeReport
from schemas.limits import REASON_CHARACTERS_MAX
from schemas.types.arrow_values import from_arrow

PARCELS = "parcels binary"  # the schema of what the task gives to Spark


@dataclass(frozen=True, slots=True)
class SnapshotTask:
    """Reads rows of a source's snapshot; a value, so that Spark can send it to the workers."""

    plan: Plan  # has the columns of all views
    rules: MessageRules
    columns: Sequence[SnapshotColumn]  # those of plan.image
    views: tuple[ViewInputs, ...]
    key_buckets: int
    images: int  # the number of who reads the images
    placement: Placement

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield parcels, some in each row, and at the end the report."""
        context = TaskContext.get()
        report = RangeReport(
            number=0 if context is None else context.partitionId(), source=self.plan.source
        )
        with task_body():
            failpoint("snapshot_task")
            for batch in batches:  # all of them, also behind a refused row: Spark waits for that
                if report.unreadable is None and batch.num_rows:
                    try:
                        yield _pack(image_parcels(self._read(batch, report), *self._to))
                    except SnapshotRefused as refused:
                        of = f" of source {self.plan.source}" if self.plan.source else ""
                        report.unreadable = f"the snapshot{of}: {refused}"
            yield _pack([report_parcel(msgspec.json.encode(report))])

    @property
    def _to(self) -> tuple[Placement, int]:
        return self.placement, self.images

    def _read(self, batch: pa.RecordBatch, report: RangeReport) -> pa.RecordBatch:
        """Return the images of some rows, and count them."""
        plan, keys, count = self.plan, key_indexes(self.plan), batch.num_rows
        columns = read_columns(batch, self.columns, keys, self.rules.text_converter())
        rows = RangeRows(columns, np.ones(count, np.int64))
        self._require_values(rows)
        types = [column.type for column in plan.primary_key]
        values = [from_arrow(columns[index], kind) for index, kind in zip(keys, types, strict=True)]
        buckets = buckets_of(values, types, count, self.key_buckets)  # a key is there once
        first = (report.number << RUNNING_BITS) + report.rows
        report.rows += count
        arrays = [
            *columns,
            pa.array(np.arange(first, first + count)),
            pa.repeat(pa.scalar(pack_summary(int(Kind.SET), 1, 0), pa.int64()), count),
            pa.nulls(count, pa.int64()),
            pa.nulls(count, pa.int64()),
            pa.array(buckets, pa.int64()),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=image_schema(plan.image))

    def _require_values(self, rows: RangeRows) -> None:
        """Raise SnapshotRefused at a row on which an expression of a query fails."""
        for view in (each for each in self.views if each.can_fail):
            own, numbers = rows.select(view.indexes), np.arange(len(rows.signs))
            failures = evaluate_rows(
                view.plan, own, WeightedRows(numbers, numbers, rows.signs)
            ).failures
            if failures:
                at, reason = failures[0]
                shown = ", ".join(
                    f"{column.name} = {from_arrow(array.slice(at, 1), column.type)[0]!r}"
                    for array, column in zip(own.columns, view.plan.used, strict=True)
                )
                raise SnapshotRefused(f"{reason}; the row is {shown[: REASON_CHARACTERS_MAX // 2]}")


def _pack(parcels: Iterable[Parcel]) -> pa.RecordBatch:
    record = msgspec.msgpack.encode(list(parcels))
    return pa.RecordBatch.from_arrays([pa.array([record], pa.binary())], ["parcels"])


class UnpackRows:
    """The first task of a stage after a SnapshotTask: rows of Spark in, parcels out."""

    def run(self, given: Iterable[Any]) -> Iterator[Parcel]:
        return Unpack().run(bytes(row[0]) for row in given)
