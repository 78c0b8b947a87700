"""Weighted rows on their way from the decode tasks to the fold tasks, in one of two forms.

    some expression has to be evaluated: ─► rows ─► Spark projects and shuffles them, row by row
    group and arguments are columns:     ─► parcels: all rows for one fold task in one value

A parcel is an Arrow stream, which Spark moves without looking into it: nobody takes columns apart
into rows and puts them together again. Epochs of 5,000 are a sixth shorter for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, StructType

from jobs.core.plan.bucket import buckets_of
from jobs.core.plan.tree import Column, Plan
from jobs.core.rows.consolidate import Integers, Weighted, plain_places
from schemas.limits import PARCEL_BYTES_MAX
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import from_arrow
from schemas.types.sql_types import SqlType

POSITION, WEIGHT, REPORT, BUCKET = "__position", "__weight", "__report", "__bucket"
TARGET, PARCEL = "__target", "__parcel"
PARCELS = pa.schema([(TARGET, pa.int32()), (REPORT, pa.binary()), (PARCEL, pa.binary())])
SPARK_PARCELS = (
    StructType().add(TARGET, IntegerType()).add(REPORT, BinaryType()).add(PARCEL, BinaryType())
)


def rows_schema(
    columns: Sequence[Column], more: Sequence[tuple[str, pa.DataType]] = ()
) -> pa.Schema:
    """Columns of rows, and behind them ours."""
    own = [(POSITION, pa.int64()), (WEIGHT, pa.int64()), (REPORT, pa.binary()), *more]
    return pa.schema([*((column.name, arrow_type(column.type)) for column in columns), *own])


@dataclass(frozen=True, slots=True)
class Parcelling:
    """How the rows of a plan are parcelled out among fold tasks; a value, so that it travels."""

    group: tuple[int, ...]  # places of its columns among the used ones
    group_types: tuple[SqlType, ...]
    arguments: tuple[int, ...]
    buckets: int
    targets: int  # fold tasks

    def parcels(
        self, columns: Sequence[pa.Array], weighted: Weighted, groups: Integers
    ) -> Iterator[pa.RecordBatch]:
        """Used columns of a range, which of its rows are sent, and which group each is of."""
        if not len(weighted.places):
            return
        buckets = self._buckets(columns, groups)[groups[weighted.places]]
        targets = buckets % self.targets
        for target in range(self.targets):
            chosen = np.flatnonzero(targets == target)
            if len(chosen):
                rows = self._rows(columns, weighted, chosen, buckets)
                for piece in _pieces(rows):
                    yield _batch(target, parcel=_written(piece))

    def _buckets(self, columns: Sequence[pa.Array], groups: Integers) -> Integers:
        """The bucket of each group, by its number."""
        one_of = np.zeros(groups.max(initial=-1) + 1, np.int64)
        one_of[groups] = np.arange(len(groups))  # any of its rows
        rows = pa.array(one_of)
        values = [
            from_arrow(columns[place].take(rows), kind)
            for place, kind in zip(self.group, self.group_types, strict=True)
        ]
        return np.array(buckets_of(values, self.group_types, len(rows), self.buckets), np.int64)

    def _rows(
        self, columns: Sequence[pa.Array], weighted: Weighted, chosen: Integers, buckets: Integers
    ) -> pa.RecordBatch:
        """As the projection would name them."""
        taken = pa.array(weighted.places[chosen])
        named = {f"g{i}": columns[place].take(taken) for i, place in enumerate(self.group)}
        named |= {f"a{i}": columns[place].take(taken) for i, place in enumerate(self.arguments)}
        named[POSITION] = pa.array(weighted.positions[chosen])
        named[WEIGHT] = pa.array(weighted.weights[chosen])
        named[BUCKET] = pa.array(buckets[chosen])
        return pa.RecordBatch.from_pydict(named)


def parcelling_of(plan: Plan, buckets: int, targets: int) -> Parcelling | None:
    """None where a row is more than its columns before it is folded."""
    places = plain_places(plan)
    if places is None:
        return None
    group, arguments = places
    types = tuple(each.type for each in plan.group)
    return Parcelling(group, types, arguments, buckets, targets)


def report_parcel(payload: bytes) -> pa.RecordBatch:
    """A report goes to any fold task."""
    return _batch(0, report=payload)


def arrived(batches: Iterable[pa.RecordBatch], bytes_max: int) -> list[pa.RecordBatch] | None:
    """Return the batches that have rows, or None if together they have too many bytes.

    All are taken from Spark in any case: its writer waits until they are.
    """
    found: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        size += batch.nbytes
        if size > bytes_max:
            found.clear()
        elif batch.num_rows:
            found.append(batch)
    return found if size <= bytes_max else None


def unpacked(parcels: pa.Table) -> pa.Table:
    """The rows of all parcels together; of none, none."""
    found = [
        pa.ipc.open_stream(parcel.as_buffer()).read_all()
        for chunk in parcels[PARCEL].chunks
        for parcel in chunk.drop_null()
    ]
    return pa.concat_tables(found) if found else pa.table({})


def _pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Small enough for one value each, where a row alone is."""
    if rows.nbytes <= PARCEL_BYTES_MAX or rows.num_rows == 1:
        yield rows
        return
    half = rows.num_rows // 2
    yield from _pieces(rows.slice(0, half))
    yield from _pieces(rows.slice(half))


def _written(rows: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return sink.getvalue()


def _value(parcel: pa.Buffer | None) -> pa.Array:
    """A column of this one value; its bytes stay where they are."""
    if parcel is None:
        return pa.nulls(1, pa.binary())
    ends = pa.array([0, parcel.size], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, parcel])


def _batch(
    target: int, *, report: bytes | None = None, parcel: pa.Buffer | None = None
) -> pa.RecordBatch:
    arrays = [pa.array([target], pa.int32()), pa.array([report], pa.binary()), _value(parcel)]
    return pa.RecordBatch.from_arrays(arrays, schema=PARCELS)
