"""Parcels on their way through a shuffle: each arrives once at its target, in equal numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.edge.rows.weighted_rows import (
    Parcel,
    pack_rows,
    report_parcel,
    take_parcels,
    unpack_parcels,
)
from jobs.edge.tasks import outbox
from jobs.edge.tasks.outbox import Outbox, Unpack, count_records
from jobs.edge.tasks.stage_functions import TaskChain
from schemas.limits import PARCEL_BYTES_MAX, SHUFFLE_RECORDS_MAX, TASK_BYTES_MAX

# The target, and the rows.
SENT = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40)))


class Sender:
    """A task that makes parcels of these."""

    def run(self, given: Iterable[tuple[int, int]]) -> Iterator[Parcel]:
        yield from make_parcels(given)


MAKE = TaskChain((Sender(),))


def make_parcels(sent: Iterable[tuple[int, int]]) -> Iterator[Parcel]:
    for number, (target, rows) in enumerate(sent):
        yield pack_rows(number % 4, target, pa.RecordBatch.from_pydict({"a0": [number] * rows}))
        yield report_parcel(str(number).encode())


def send(box: Outbox, sent: list[tuple[int, int]]) -> dict[int, list[bytes]]:
    """Return the records of each target."""
    found: dict[int, list[bytes]] = {target: [] for target in range(box.targets)}
    items = list(box(sent))
    for key, record in zip(items[::2], items[1::2], strict=True):
        found[int.from_bytes(key, "big")].append(record)
    return found


@pytest.mark.parametrize("records", [None, 1, 3])
@given(sent=SENT, record_bytes=st.sampled_from([1, 200, 10_000]))
def test_every_parcel_arrives_once(
    records: int | None, sent: list[tuple[int, int]], record_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbox, "PARCEL_BYTES_MAX", record_bytes)
        found = send(Outbox(MAKE, 3, records, TASK_BYTES_MAX), sent)
    arrived, reports = list[tuple[int, int]](), list[bytes]()
    for target, packed in found.items():
        if records is not None:
            assert len(packed) == records
        for parcel in Unpack().run(packed):
            if parcel.reader is None:
                reports.append(parcel.content)
                continue
            rows = unpack_parcels([parcel])
            arrived.append((rows["a0"][0].as_py(), rows.num_rows))
            assert sent[arrived[-1][0]][0] == target
            assert parcel.reader == arrived[-1][0] % 4
    assert sorted(arrived) == [(number, rows) for number, (_, rows) in enumerate(sent)]
    assert sorted(map(int, reports)) == list(range(len(sent)))


def test_a_target_that_takes_no_more_gets_only_sizes() -> None:
    """It refuses the epoch in any case, which is then read in parts."""
    sent = [(0, 1_000)] * 20
    whole = sum(parcel.size for parcel in make_parcels(sent))
    limit = whole // 4
    found = send(Outbox(MAKE, 1, 2, limit), sent)
    parcels = list(Unpack().run(found[0]))
    assert sum(parcel.size for parcel in parcels) == whole
    reports = sum(parcel.reader is None for parcel in parcels)
    kept = sum(parcel.content != b"" for parcel in parcels) - reports
    assert 0 < kept <= 5
    assert take_parcels(parcels, limit) is None
    assert reports == 20, "reports are sent all the same"


def test_the_number_of_records_is_bounded() -> None:
    assert count_records(1) * PARCEL_BYTES_MAX > TASK_BYTES_MAX
    for targets, following in pairwise(range(1, 3_000)):
        assert 1 <= count_records(following) <= count_records(targets)
        assert count_records(targets) * targets <= max(targets, SHUFFLE_RECORDS_MAX)
