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
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from jobs.core.homes import Placement
from jobs.core.plan.tree import Column, Plan, WindowBound
from jobs.core.rows.consolidate import Integers, WeightedRows, plain_indexes
from jobs.edge.rows.late_rows import LATE
from jobs.edge.rows.long_texts import split_rows
from jobs.edge.rows.range_rows import RangeRows
from schemas.limits import PARCEL_BYTES_MAX
from schemas.types.arrow_types import arrow_type
from schemas.types.sql_types import SqlType

POSITION, WEIGHT, BUCKET = "__position", "__weight", "__bucket"
# Of the images of a job with dedupe: the time of the source, and the partition as a number.
CHANGE_TIME, CHANGE_PARTITION = "__change_time", "__change_partition"
ROW_BUCKET = "__row_bucket"  # of the key
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


class Parcel(NamedTuple):
    """What a task sends to another one."""

    # The number of a view, of a join's side, or of images; None: a report for the driver. TRUNCATEs
    # for images are for the complement of their number.
    reader: int | None
    target: int  # the number of a task
    size: int  # bytes of the rows, before they were compressed
    content: bytes  # rows as an Arrow stream; all else as JSON


def image_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema of images on their way to a dedupe task."""
    own = (POSITION, WEIGHT, CHANGE_TIME, CHANGE_PARTITION, ROW_BUCKET)
    named = [(column.name, arrow_type(column.type)) for column in columns]
    return pa.schema([*named, *((name, pa.int64()) for name in own)])


@dataclass(frozen=True, slots=True)
class Parcelling:
    """How to divide the rows of a plan among fold tasks; a value, so that Spark can send it."""

    group: tuple[int, ...]  # indexes of the group's columns in the used columns
    group_types: tuple[SqlType, ...]
    arguments: tuple[int, ...]
    buckets: int
    placement: Placement  # of the fold tasks
    reader: int = 0
    with_heads: bool = False  # the fold needs the positions of the rows
    evaluates: bool = False  # the columns are those of EvaluatedRows
    copies: int = 1  # of a row among them, at most
    bounds: tuple[int, ...] = ()  # of sessions, in the group; they count as NULL in its bucket
    closes: bool = False  # the fold needs to know the late rows

    def parcels(
        self, rows: RangeRows, weighted: WeightedRows, late: pa.Array | None = None
    ) -> Iterator[Parcel]:
        """Yield the parcels of a range with these weighted rows, and what LATE has of each."""
        if not len(weighted.indexes):
            return
        hashed = [None if i in self.bounds else index for i, index in enumerate(self.group)]
        groups = rows.number([index for index in hashed if index is not None])[weighted.indexes]
        buckets = rows.find_buckets(hashed, self.group_types, self.buckets)[groups]
        if self.closes and late is None:
            late = pa.nulls(len(groups), pa.binary())
        for target, chosen in _by_target(buckets, self.placement):
            projected = self._project(rows.columns, weighted, chosen, buckets)
            if late is not None:
                projected = projected.append_column(LATE, late.take(pa.array(chosen)))
            for piece in split_rows(projected, PARCEL_BYTES_MAX):
                yield pack_rows(self.reader, target, piece)

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


def image_parcels(images: pa.RecordBatch, placement: Placement, reader: int) -> Iterator[Parcel]:
    """Yield images, which have the buckets of their keys, as parcels for dedupe tasks."""
    for target, chosen in _by_target(images[ROW_BUCKET].to_numpy(), placement):
        for piece in split_rows(images.take(pa.array(chosen)), PARCEL_BYTES_MAX):
            yield pack_rows(reader, target, piece)


def _by_target(buckets: Integers, placement: Placement) -> Iterator[tuple[int, Integers]]:
    """Yield the rows of each task that has some."""
    targets = placement.find_tasks(buckets)
    for target in np.flatnonzero(np.bincount(targets)).tolist():
        yield target, np.flatnonzero(targets == target)


def parcelling_of(
    plan: Plan,
    buckets: int,
    placement: Placement,
    *,
    reader: int = 0,
    with_heads: bool = False,
    closes: bool = False,
) -> Parcelling:
    types, indexes = tuple(each.type for each in plan.group), plain_indexes(plan)
    if indexes is not None:
        group, arguments = indexes
        return Parcelling(group, types, arguments, buckets, placement, reader, with_heads)
    width, bounds = len(plan.group), tuple[int, ...]()
    if plan.instants_argument is not None:
        expressions = [each.expression for each in plan.group]
        bounds = tuple(i for i, each in enumerate(expressions) if isinstance(each, WindowBound))
    return Parcelling(
        tuple(range(width)),
        types,
        tuple(range(width, width + len(plan.arguments))),
        buckets,
        placement,
        reader,
        with_heads,
        evaluates=True,
        copies=plan.copies_per_row,
        bounds=bounds,
        closes=closes,
    )


def report_parcel(payload: bytes) -> Parcel:
    """Return a report as a parcel; it goes to the first fold task, but any would do."""
    return Parcel(None, 0, 0, payload)


def take_parcels(
    parcels: Iterable[Parcel], bytes_max: int
) -> dict[int | None, list[Parcel]] | None:
    """Return the parcels by their reader, or None if their rows have too many bytes together.

    All parcels are taken from Spark in either case, because its writer waits for that.
    """
    found: dict[int | None, list[Parcel]] = {}
    size = 0
    for parcel in parcels:
        size += parcel.size
        if size > bytes_max:
            found.clear()
        else:
            found.setdefault(parcel.reader, []).append(parcel)
    return found if size <= bytes_max else None


def unpack_parcels(parcels: Iterable[Parcel]) -> pa.Table:
    """Return the rows of all parcels; an empty table if there are none."""
    found = [pa.ipc.open_stream(parcel.content).read_all() for parcel in parcels]
    return pa.concat_tables(found) if found else pa.table({})


def pack_rows(reader: int, target: int, rows: pa.RecordBatch) -> Parcel:
    """Return rows as one parcel for a task."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as stream:
        stream.write_batch(rows)
    return Parcel(reader, target, rows.nbytes, sink.getvalue().to_pybytes())
