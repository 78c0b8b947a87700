"""The dedupe task over files and hot states: TRUNCATEs, and many keys that were left.

table ──► epochs of changes and TRUNCATEs ──► DedupeTask ──► rows to fold, files ──► live rows
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
import pytest

from jobs.core.fold.program import Program
from jobs.core.homes import ONE_TASK
from jobs.core.plan.bucket import bucket_of
from jobs.core.rows.dedupe import KeyChange
from jobs.core.rows.truncations import Truncation, Truncations
from jobs.core.values.change import Row
from jobs.edge.rows.weighted_rows import (
    CHANGE_PARTITION,
    CHANGE_TIME,
    POSITION,
    ROW_BUCKET,
    WEIGHT,
    Parcel,
    image_parcels,
    image_schema,
    parcelling_of,
    unpack_parcels,
)
from jobs.edge.state import hot_state
from jobs.edge.state.bucket_states import CommittedEpoch, CommittedState, stamp_of
from jobs.edge.state.errors import HotStateDamaged
from jobs.edge.state.image_states import ImageRecords
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.epoch_files import TableLayout
from jobs.edge.table.file_writer import EpochAttempt
from jobs.edge.tasks import dedupe
from jobs.edge.tasks.decode_inputs import ViewInputs
from jobs.edge.tasks.dedupe import DedupeReport, DedupeTask
from jobs.edge.tasks.range_report import RangeReport
from jobs.running.outcome import Outcome
from schemas.types.arrow_values import to_arrow
from tests.support.epoch_rows import epoch_row
from tests.support.histories.keyed_table import (
    PLAN,
    Message,
    Table,
    by_partition,
    find_truncations,
    read,
    shipped,
)
from tests.support.jobs.parcels import sort_parcels

BUCKETS = 4
VIEW = ViewInputs(
    0,
    "",
    PLAN,
    Path(),
    tuple(range(len(PLAN.used))),
    deadline=None,
    parcelling=parcelling_of(PLAN, BUCKETS, ONE_TASK),
)


def parcels(changes: Sequence[KeyChange], truncations: Sequence[Truncation]) -> Iterator[Parcel]:
    """Yield what decode tasks send, with the bucket of each row."""
    if truncations:
        yield Parcel(~1, 0, 0, msgspec.json.encode((list(range(BUCKETS)), truncations)))
    if not changes:
        return
    images = zip(*(change.image for change in changes), strict=True)
    columns = [
        to_arrow(values, column.type) for values, column in zip(images, PLAN.image, strict=True)
    ]
    types = [column.type for column in PLAN.primary_key]
    of_changes: dict[str, list[object]] = {
        POSITION: [each.position for each in changes],
        WEIGHT: [each.summary for each in changes],
        CHANGE_TIME: [each.time for each in changes],
        CHANGE_PARTITION: [each.partition for each in changes],
        ROW_BUCKET: [bucket_of(each.key, types, BUCKETS) for each in changes],
    }
    schema = image_schema(PLAN.image)
    columns += [
        pa.array(of_changes[field.name], field.type) for field in list(schema)[len(columns) :]
    ]
    yield from image_parcels(pa.RecordBatch.from_arrays(columns, schema=schema), ONE_TASK, 1)


class Deduped:
    """A table whose epochs one dedupe task computes; it has nothing but the part `rows`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.table = EpochTable.create(home / "table", TableLayout(Program(PLAN)))
        self.newest = epoch_row(0, PLAN)
        self.table.commit_epoch(self.newest, ())
        self.recent = [CommittedEpoch.of(self.newest)]
        self.folded = Counter[Row]()
        self.images = self.ambiguous = 0

    def epoch(self, ranges: Sequence[tuple[int, Sequence[Message]]]) -> None:
        ordered = sorted(ranges, key=lambda each: each[0])
        sent = [each for n, (of, range_) in enumerate(ordered) for each in shipped(range_, n, of)]
        found = list(find_truncations(ordered))
        uuid = uuid4().hex
        task = DedupeTask(
            PLAN,
            CommittedState(
                self.table.root,
                self.home / "cache",
                stamp_of(self.newest),
                self.table.version,
                tuple(self.recent),
            ),
            EpochAttempt(self.newest.epoch + 1, uuid),
            views=(VIEW,),
            number=1,
            truncations=Truncations.of_json(self.newest.time.truncations),
        )
        outcome = Outcome(ranges=[RangeReport(number=0, truncations=found)])
        emitted = sort_parcels(task.run(parcels(sent, found)))
        for parcel in emitted.get(None, ()):
            outcome.dedupes.append(msgspec.json.decode(parcel.content, type=DedupeReport))
        for row in unpack_parcels(emitted.get(0, ())).to_pylist():
            self.folded[row["g0"], row["a0"]] += row[WEIGHT]
        self.images += sum(report.rows_delta for report in outcome.dedupes)
        self.ambiguous += sum(report.ambiguous_keys for report in outcome.dedupes)
        files = [file for report in outcome.dedupes for file in report.files]
        named = {"rows": [file.path for file in files]} if files else {}
        known = outcome.remember_truncations(self.newest)
        number = self.newest.epoch + 1
        self.newest = epoch_row(number, PLAN, uuid=uuid, files=named, watermarks=known)
        self.table.commit_epoch(self.newest, files)
        self.recent = [*self.recent, CommittedEpoch.of(self.newest)][-3:]


def random_table(chance: random.Random) -> Table:
    table = Table()
    for _ in range(60):
        keys = range(8)
        match chance.randrange(6):
            case 0 | 1 | 2:
                table.insert(chance.choice(keys), (chance.choice("ab"), chance.randrange(2)))
            case 3:
                table.update(chance.choice(keys), chance.choice(keys))
            case 4:
                table.delete(chance.choice(keys))
            case _ if chance.random() < 0.4:
                table.truncate()
    spaced = enumerate(table.sent)
    table.sent = [Message(each.changes, table.time + 10 * n) for n, each in spaced]
    return table


@pytest.fixture(autouse=True)
def closed_states(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Open states keep descriptors, and other tests look at how many there are."""
    opened: dict[Any, hot_state.HotState] = {}
    monkeypatch.setattr(hot_state._states, "held", opened)
    yield
    for state in opened.values():
        state.close()


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_host_still_has_truncates_take_the_rows_from_before_them(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dedupe, "TRUNCATED_KEYS_AT_ONCE", 2)
    monkeypatch.setattr(dedupe, "HOT_STATE_CHUNK_RECORDS", 1)  # a file for each bucket
    chance = random.Random(seed)
    table, job = random_table(chance), Deduped(tmp_path)
    reads = [
        (chance.randrange(3), chance.randrange(1, 9), chance.random() < 0.5) for _ in range(20)
    ]
    for epoch in read(by_partition(table.sent), reads):
        if chance.random() < 0.3:
            shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        job.epoch(epoch)
        assert min(job.folded.values(), default=0) >= 0, "a row was taken away twice"
    assert (+job.folded, job.images) == (table.live(), len(table.rows))


def test_a_bucket_with_too_many_left_keys_forgets_the_oldest_and_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dedupe, "LEFT_KEYS_MAX", 2)
    table, job = Table(), Deduped(tmp_path)
    for key in range(60):
        table.time += 1_000
        table.insert(key, ("a", 1))
        table.update(key, 100 + key)
        job.epoch(list(enumerate(by_partition(table.sent))))
        table.sent.clear()
    assert +job.folded == table.live()
    remembered = 0
    for state in hot_state._states.held.values():
        with state.view() as view:
            states = ImageRecords(PLAN, state.layout).read_states(list(view.walk()))
            remembered += sum(each is not None and each.image is None for each in states)
    assert remembered <= BUCKETS * (2 + 1), "an epoch adds one"
    assert 40 < job.ambiguous < 60


def test_a_record_that_is_no_image_is_found_and_its_bucket_built_from_the_table(
    tmp_path: Path,
) -> None:
    table, job = Table(), Deduped(tmp_path)

    def run() -> None:
        job.epoch(list(enumerate(by_partition(table.sent))))
        table.sent.clear()

    for number in range(3):  # the third one applies what the second one has of key 7
        for key in range(40):
            if number < 2 or key != 7:
                table.insert(key, ("a", number))
        run()
    layout = next(iter(hot_state._states.held.values())).layout
    (name,) = ImageRecords(PLAN, layout).names_of_keys([(7,)])
    for state in hot_state._states.held.values():
        with state.view() as view:
            (record,) = view.records([name])
        if record is not None:
            with state._transaction(write=True) as txn:
                txn.put(name, record[:-1], db=state._databases.groups)
    table.delete(7)
    with pytest.raises(HotStateDamaged):
        run()
    run()
    assert (+job.folded, job.images) == (table.live(), len(table.rows))
