"""Send the parcels of a task through Spark's shuffle, as records of bytes.

    parcels for target 0 ─► record, record, nothing ──┐
    parcels for target 1 ─► record, nothing, nothing ─┴─► Spark's shuffle ─► parcels, by target

A record is some parcels as bytes, which Spark moves without looking into them. With homes each task
sends each target the same number of records: Spark places a task where the partition of another RDD
is, if both have equally many elements (jobs.edge.spark.placed_tasks).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import msgspec

from jobs.edge.rows.weighted_rows import Parcel
from jobs.edge.spark.placed_tasks import pack_target
from jobs.edge.tasks.body import task_body
from jobs.edge.tasks.stage_functions import TaskChain
from schemas.limits import PARCEL_BYTES_MAX, SHUFFLE_RECORDS_MAX, TASK_BYTES_MAX

_decode = msgspec.msgpack.Decoder(list[Parcel]).decode


def count_records(targets: int) -> int:
    """Return how many records a task sends to each of so many targets with homes."""
    return max(1, min(1 + TASK_BYTES_MAX // PARCEL_BYTES_MAX, SHUFFLE_RECORDS_MAX // targets))


class Unpack:
    """The first task of a stage after a shuffle: records in, parcels out."""

    def run(self, given: Iterable[bytes]) -> Iterator[Parcel]:
        return (parcel for record in given if record for parcel in _decode(record))


@dataclass(frozen=True, slots=True)
class Outbox:
    """The function of a stage before a shuffle: for each record its target, then its bytes."""

    chain: TaskChain
    targets: int
    records: int | None  # for each target, exactly; None: as many as there are
    bytes_max: int  # that a target may hold

    def __call__(self, given: Iterable[Any]) -> Iterator[bytes]:
        with task_body():
            for target, record in self._pack(given):
                yield pack_target(target)
                yield record

    def _pack(self, given: Iterable[Any]) -> Iterator[tuple[int, bytes]]:
        boxes = [_Box(self) for _ in range(self.targets)]
        for parcel in self.chain.run(given):
            record = boxes[parcel.target].put(parcel)
            if record is not None:
                yield parcel.target, record
        for target, box in enumerate(boxes):
            yield from zip(repeat(target), box.close(), strict=False)


class _Box:
    """The parcels for one target that are not sent yet."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._held: list[Parcel] = []
        self._size = self._total = 0  # bytes of rows that are held, and in all
        self._sent = 0  # records

    def put(self, parcel: Parcel) -> bytes | None:
        """Take a parcel; return a record once there is enough for one."""
        self._total += parcel.size
        if self._total > self._outbox.bytes_max and parcel.reader is not None:
            parcel = parcel._replace(content=b"")  # the target takes no rows at all
        else:
            self._size += parcel.size
        self._held.append(parcel)
        records = self._outbox.records
        if self._size < PARCEL_BYTES_MAX or (records is not None and self._sent + 1 >= records):
            return None
        return self._pack()

    def close(self) -> Iterator[bytes]:
        """Yield the last records."""
        if self._held:
            yield self._pack()
        for _ in range(self._sent, self._outbox.records or 0):
            yield b""

    def _pack(self) -> bytes:
        record = msgspec.msgpack.encode(self._held)
        self._held, self._size, self._sent = [], 0, self._sent + 1
        return record
