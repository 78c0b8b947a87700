"""Send weighted rows from the decode tasks to the fold tasks, in one of two forms.

    group and arguments are known:       ─► parcels: all rows for one fold task in one value
    Spark must evaluate an expression:   ─► rows ─► Spark projects and shuffles them, row by row

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

from jobs.core.plan.tree import Column, Plan
from jobs.core.rows.consolidate import Integers, WeightedRows, plain_indexes
from jobs.edge.rows.evaluated_rows import is_evaluable
from jobs.edge.rows.range_rows import RangeRows
from schemas.limits import PARCEL_BYTES_MAX
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import to_list
from schemas.types.sql_types import SqlType

POSITION, WEIGHT, REPORT, BUCKET = "__position", "__weight", "__report", "__bucket"
# Of the images of a job with dedupe: the time of the source, and the partition as a number.
CHANGE_TIME, CHANGE_PARTITION = "__change_time", "__change_partition"
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


def rows_schema(
    columns: Sequence[Column], more: Sequence[tuple[str, pa.DataType]] = ()
) -> pa.Schema:
    """Return the schema of source columns, followed by our own columns."""
    own = [(POSITION, pa.int64()), (WEIGHT, pa.int64()), (REPORT, pa.binary()), *more]
    return pa.schema([*((column.name, arrow_type(column.type)) for column in columns), *own])


CHANGE_COLUMNS = ((CHANGE_TIME, pa.int64()), (CHANGE_PARTITION, pa.int64()))


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

    def parcels(self, rows: RangeRows, weighted: WeightedRows) -> Iterator[pa.RecordBatch]:
        """Yield the parcels of a range with these weighted rows."""
        if not len(weighted.indexes):
            return
        groups = rows.number(self.group)[weighted.indexes]
        buckets = rows.find_buckets(self.group, self.group_types, self.buckets)[groups]
        targets = buckets % self.targets
        for target in range(self.targets):
            chosen = np.flatnonzero(targets == target)
            if len(chosen):
                projected = self._project(rows.columns, weighted, chosen, buckets)
                for piece in _split(projected):
                    yield _parcel(self.first + target, piece)

    def _project(
        self,
        columns: Sequence[pa.Array],
        weighted: WeightedRows,
        chosen: Integers,
        buckets: Integers,
    ) -> pa.RecordBatch:
        """Return the chosen rows with the column names of the projection in Spark."""
        taken = pa.array(weighted.indexes[chosen])
        named = {f"g{i}": columns[index].take(taken) for i, index in enumerate(self.group)}
        named |= {f"a{i}": columns[index].take(taken) for i, index in enumerate(self.arguments)}
        if self.with_heads:
            named[POSITION] = pa.array(weighted.positions[chosen])
        named[WEIGHT] = pa.array(weighted.weights[chosen])
        named[BUCKET] = pa.array(buckets[chosen])
        return pa.RecordBatch.from_pydict(named)


def parcelling_of(
    plan: Plan, buckets: int, targets: int, *, with_heads: bool = False, closes: bool = False
) -> Parcelling | None:
    """Return the parcelling of a plan; None if Spark evaluates its rows.

    Spark does so if windows close, because late rows go their own way."""
    types, indexes = tuple(each.type for each in plan.group), plain_indexes(plan)
    if indexes is not None:
        group, arguments = indexes
        return Parcelling(group, types, arguments, buckets, targets, with_heads=with_heads)
    if closes or not is_evaluable(plan):
        return None
    width = len(plan.group)
    return Parcelling(
        tuple(range(width)),
        types,
        tuple(range(width, width + len(plan.arguments))),
        buckets,
        targets,
        with_heads=with_heads,
        evaluates=True,
        copies=plan.copies_per_row,
    )


def rows_parcel(target: int, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield rows as parcels for one target, for expressions that Spark evaluates later."""
    for piece in _split(rows):
        yield _parcel(target, piece)


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
        size += _count_bytes(batch)
        if size > bytes_max:
            found.clear()
        elif batch.num_rows:
            found.append(batch)
    return found if size <= bytes_max else None


def _count_bytes(batch: pa.RecordBatch) -> int:
    """Return the bytes of the rows of a batch, or in its parcels."""
    if BYTES not in batch.schema.names:
        return int(batch.nbytes)
    return sum(to_list(batch[BYTES]))


def unpack_parcels(parcels: pa.Table) -> pa.Table:
    """Return the rows of all parcels; an empty table if there are no parcels."""
    found = [
        pa.ipc.open_stream(parcel.as_buffer()).read_all()
        for chunk in parcels[PARCEL].chunks
        for parcel in chunk.drop_null()
    ]
    return pa.concat_tables(found) if found else pa.table({})


def _split(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split rows into pieces of at most PARCEL_BYTES_MAX; a large row is a piece of its own."""
    if rows.nbytes <= PARCEL_BYTES_MAX or rows.num_rows == 1:
        yield rows
        return
    half = rows.num_rows // 2
    yield from _split(rows.slice(0, half))
    yield from _split(rows.slice(half))


def _to_stream(rows: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as stream:
        stream.write_batch(rows)
    return sink.getvalue()


def _to_column(parcel: pa.Buffer) -> pa.Array:
    """Return a column with this one value, without copying its bytes."""
    ends = pa.array([0, parcel.size], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, parcel])


def _parcel(target: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    return _batch(target, pa.nulls(1, pa.binary()), _to_column(_to_stream(rows)), rows.nbytes)


def _batch(target: int, report: pa.Array, parcel: pa.Array, size: int) -> pa.RecordBatch:
    arrays = [pa.array([target], pa.int32()), report, parcel, pa.array([size], pa.int64())]
    return pa.RecordBatch.from_arrays(arrays, schema=PARCELS)
