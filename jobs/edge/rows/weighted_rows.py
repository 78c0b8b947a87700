"""Send weighted rows between tasks as parcels: all rows for one task in one value.

    decode task ─────────────────────────── by bucket of the group ──► fold task
         └─ by bucket of the key ─► dedupe task ─────────┘   with `dedupe` only

A parcel is an Arrow stream that Spark moves as bytes, so no columns are taken apart into rows and
put together again. This makes epochs of 5,000 messages a sixth shorter. Parcels are compressed
here, because Spark copies them four times between its processes and files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructType

from jobs.core.plan.tree import Column, Plan, WindowBound
from jobs.core.rows.consolidate import Integers, WeightedRows, plain_indexes
from jobs.edge.rows.late_rows import LATE
from jobs.edge.rows.long_texts import split_rows
from jobs.edge.rows.range_rows import RangeRows
from schemas.limits import PARCEL_BYTES_MAX
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import to_list
from schemas.types.sql_types import SqlType

POSITION, WEIGHT, REPORT, BUCKET = "__position", "__weight", "__report", "__bucket"
# Of the images of a job with dedupe: the time of the source, and the partition as a number.
CHANGE_TIME, CHANGE_PARTITION = "__change_time", "__change_partition"
ROW_BUCKET = "__row_bucket"  # of the key
TARGET, PARCEL, BYTES = "__target", "__parcel", "__bytes"
PARCELS = pa.schema(
    [
        (TARGET, pa.int32()),
        (REPORT, pa.binary()),
        (PARCEL, pa.binary()),
        (BYTES, pa.int64()),  # of the parcel's rows, before they were compressed
    ]
)
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
SPARK_PARCELS = (
    StructType()
    .add(TARGET, IntegerType())
    .add(REPORT, BinaryType())
    .add(PARCEL, BinaryType())
    .add(BYTES, LongType())
)


def image_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema of images on their way to a dedupe task."""
    numbers = (POSITION, WEIGHT, CHANGE_TIME, CHANGE_PARTITION, ROW_BUCKET)
    own = [*((name, pa.int64()) for name in numbers), (REPORT, pa.binary())]
    return pa.schema([*((column.name, arrow_type(column.type)) for column in columns), *own])


@dataclass(frozen=True, slots=True)
class Parcelling:
    """How to divide the rows of a plan among fold tasks; a value, so that Spark can send it."""

    group: tuple[int, ...]  # indexes of the group's columns in the used columns
    group_types: tuple[SqlType, ...]
    arguments: tuple[int, ...]
    buckets: int
    targets: int  # fold tasks
    first: int = 0  # the first target, which another view's parcels do not reach
    with_heads: bool = False  # the fold needs the positions of the rows
    evaluates: bool = False  # the columns are those of EvaluatedRows
    copies: int = 1  # of a row among them, at most
    bounds: tuple[int, ...] = ()  # of sessions, in the group; they count as NULL in its bucket
    closes: bool = False  # the fold needs to know the late rows

    def parcels(
        self, rows: RangeRows, weighted: WeightedRows, late: pa.Array | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the parcels of a range with these weighted rows, and what LATE has of each."""
        if not len(weighted.indexes):
            return
        hashed = [None if i in self.bounds else index for i, index in enumerate(self.group)]
        groups = rows.number([index for index in hashed if index is not None])[weighted.indexes]
        buckets = rows.find_buckets(hashed, self.group_types, self.buckets)[groups]
        if self.closes and late is None:
            late = pa.nulls(len(groups), pa.binary())
        for target, chosen in _by_target(buckets, self.targets):
            projected = self._project(rows.columns, weighted, chosen, buckets)
            if late is not None:
                projected = projected.append_column(LATE, late.take(pa.array(chosen)))
            for piece in split_rows(projected, PARCEL_BYTES_MAX):
                yield pack_rows(self.first + target, piece)

    def _project(
        self,
        columns: Sequence[pa.Array],
        weighted: WeightedRows,
        chosen: Integers,
        buckets: Integers,
    ) -> pa.RecordBatch:
        """Return the chosen rows as columns g0, g1, ..., a0, a1, ... and our own."""
        taken = pa.array(weighted.indexes[chosen])
        named = {f"g{i}": columns[index].take(taken) for i, index in enumerate(self.group)}
        named |= {f"a{i}": columns[index].take(taken) for i, index in enumerate(self.arguments)}
        if self.with_heads:
            named[POSITION] = pa.array(weighted.positions[chosen])
        named[WEIGHT] = pa.array(weighted.weights[chosen])
        named[BUCKET] = pa.array(buckets[chosen])
        return pa.RecordBatch.from_pydict(named)


def image_parcels(
    images: pa.RecordBatch, targets: int, *, first: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield images, which have the buckets of their keys, as parcels for dedupe tasks."""
    for target, chosen in _by_target(images[ROW_BUCKET].to_numpy(), targets):
        for piece in split_rows(images.take(pa.array(chosen)), PARCEL_BYTES_MAX):
            yield pack_rows(first + target, piece)


def _by_target(buckets: Integers, targets: int) -> Iterator[tuple[int, Integers]]:
    """Yield the rows of each task that has some."""
    for target in range(targets):
        chosen = np.flatnonzero(buckets % targets == target)
        if len(chosen):
            yield target, chosen


def parcelling_of(
    plan: Plan,
    buckets: int,
    targets: int,
    *,
    first: int = 0,
    with_heads: bool = False,
    closes: bool = False,
) -> Parcelling:
    """Return the parcelling of a plan."""
    types, indexes = tuple(each.type for each in plan.group), plain_indexes(plan)
    if indexes is not None:
        group, arguments = indexes
        return Parcelling(group, types, arguments, buckets, targets, first, with_heads)
    width, bounds = len(plan.group), tuple[int, ...]()
    if plan.instants_argument is not None:
        expressions = [each.expression for each in plan.group]
        bounds = tuple(i for i, each in enumerate(expressions) if isinstance(each, WindowBound))
    return Parcelling(
        tuple(range(width)),
        types,
        tuple(range(width, width + len(plan.arguments))),
        buckets,
        targets,
        first,
        with_heads,
        evaluates=True,
        copies=plan.copies_per_row,
        bounds=bounds,
        closes=closes,
    )


def report_parcel(payload: bytes) -> pa.RecordBatch:
    """Return a report as a parcel; it goes to the first fold task, but any would do."""
    return _batch(0, pa.array([payload], pa.binary()), pa.nulls(1, pa.binary()), 0)


def take_batches(batches: Iterable[pa.RecordBatch], bytes_max: int) -> list[pa.RecordBatch] | None:
    """Return the batches that have rows, or None if their rows have too many bytes together.

    All batches are taken from Spark in either case, because its writer waits for that.
    """
    found: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        size += sum(to_list(batch[BYTES]))
        if size > bytes_max:
            found.clear()
        elif batch.num_rows:
            found.append(batch)
    return found if size <= bytes_max else None


def sort_parcels(
    batches: Iterable[pa.RecordBatch], targets: int
) -> dict[int | None, list[pa.RecordBatch]]:
    """Return the parcels by the number of who reads them; those of reports by None.

    Reader `i` has the targets from `i * targets` on."""
    found: dict[int | None, list[pa.RecordBatch]] = {}
    for batch in batches:
        is_report = batch.column(REPORT).is_valid().to_pylist()
        for row, target in enumerate(batch.column(TARGET).to_pylist()):
            reader = None if is_report[row] else target // targets
            found.setdefault(reader, []).append(batch.slice(row, 1))
    return found


def unpack_parcels(parcels: pa.Table) -> pa.Table:
    """Return the rows of all parcels; an empty table if there are no parcels."""
    found = [
        pa.ipc.open_stream(parcel.as_buffer()).read_all()
        for chunk in parcels[PARCEL].chunks
        for parcel in chunk.drop_null()
    ]
    return pa.concat_tables(found) if found else pa.table({})


def _to_stream(rows: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as stream:
        stream.write_batch(rows)
    return sink.getvalue()


def _to_column(parcel: pa.Buffer) -> pa.Array:
    """Return a column with this one value, without copying its bytes."""
    ends = pa.array([0, parcel.size], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, parcel])


def pack_rows(target: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows as one parcel for a task."""
    return _batch(target, pa.nulls(1, pa.binary()), _to_column(_to_stream(rows)), rows.nbytes)


def _batch(target: int, report: pa.Array, parcel: pa.Array, size: int) -> pa.RecordBatch:
    arrays = [pa.array([target], pa.int32()), report, parcel, pa.array([size], pa.int64())]
    return pa.RecordBatch.from_arrays(arrays, schema=PARCELS)
