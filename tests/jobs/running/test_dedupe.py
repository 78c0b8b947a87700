"""Dedupe through Kafka, Spark and Delta: sources that repeat themselves, begin in the middle, or
have no image before, and the rows that are live in the end.

    random table ──► messages ──repeated, cut, without images──► epochs ──► the query over the table
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

from jobs.changing.clone import clone
from jobs.changing.evolve import evolve
from jobs.core.fold.state import Key
from jobs.core.job.cloning import clone_spec
from jobs.core.values.change import Row
from jobs.edge.process.broker import Broker
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.table.compaction import BASE_TIER, Merge, merge_files
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.reading import TableReader
from jobs.reading.files import live_files, open_table
from jobs.reading.parts import ROWS
from schemas.spec.file import load_spec
from tests.support.jobs.epochs_by_hand import ByHand, EpochsByHand
from tests.support.jobs.running_job import producer_for

pytestmark = pytest.mark.spark

COLUMNS = {"id": "BIGINT", "shop": "STRING", "name": "STRING", "cnt": "INT"}
QUERY = "SELECT name, SUM(cnt) AS total, MAX(cnt) AS top, COUNT(*) AS n FROM t GROUP BY name"
TableRow = dict[str, Any]
Record = tuple[int, bytes | None, bytes | None]  # partition, value, key
PARTITIONS = 2


class Table:
    """A table that changes, and says so in canal's way."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.rows: dict[int, TableRow] = {}

    def change(self) -> Record:
        random = self.random
        number = random.randrange(12)
        row = {
            "id": number,
            "shop": random.choice("xy"),
            "name": random.choice(["a", "b", None]),
            "cnt": random.randrange(5),
        }
        before = self.rows.get(number)
        if before is None:
            self.rows[number] = row
            return record(number, {"type": "INSERT", "data": [texts(row)]})
        if random.random() < 0.3:
            return record(number, {"type": "DELETE", "data": [texts(self.rows.pop(number))]})
        self.rows[number] = row
        old = {name: value for name, value in texts(before).items() if value != texts(row)[name]}
        return record(number, {"type": "UPDATE", "data": [texts(row)], "old": [old]})

    def changes(self, count: int) -> list[Record]:
        return [self.change() for _ in range(count)]

    def snapshot(self) -> list[Record]:
        rows = self.rows.values()
        return [record(row["id"], {"type": "INSERT", "data": [texts(row)]}) for row in rows]

    def results(self) -> dict[Key, Row]:
        """The query over the live rows."""
        groups: dict[Key, list[int]] = {}
        for row in self.rows.values():
            groups.setdefault((row["name"],), []).append(row["cnt"])
        return {key: (sum(each), max(each), len(each)) for key, each in groups.items()}


class MovingTable(Table):
    """A table whose rows change their keys: a message is in the partition of its new key."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.second = 1_700_000_000_000

    def change(self) -> Record:
        row = self.rows.get(number := self.random.randrange(12))
        new = self.random.randrange(12)
        if row is None or new in self.rows or self.random.random() < 0.3:
            return self.timed(super().change())
        self.rows[new] = {**self.rows.pop(number), "id": new}
        return self.timed(moved(row, new))

    def swap(self) -> list[Record]:
        """Exchange the keys of two rows, through a spare key, within a second."""
        if len(self.rows) < 2:
            return []
        one, two = self.random.sample(sorted(self.rows), 2)
        first, second, spare = self.rows[one], self.rows[two], 99
        self.rows[one], self.rows[two] = {**second, "id": one}, {**first, "id": two}
        moves = [moved(first, spare), moved(second, one), moved({**first, "id": spare}, two)]
        return [self.timed(record) for record in moves]

    def changes(self, count: int) -> list[Record]:
        found: list[Record] = []
        while len(found) < count:
            self.second += self.random.choice([0, 1000])
            found += self.swap() if self.random.random() < 0.3 else [self.change()]
        return found

    def timed(self, record: Record) -> Record:
        partition, value, key = record
        assert value is not None
        return partition, json.dumps(json.loads(value) | {"es": self.second}).encode(), key


def moved(row: TableRow, key: int) -> Record:
    after = texts(row | {"id": key})
    return record(key, {"type": "UPDATE", "data": [after], "old": [{"id": str(row["id"])}]})


def texts(row: TableRow) -> dict[str, str | None]:
    return {name: None if value is None else str(value) for name, value in row.items()}


def record(number: int, message: dict[str, Any]) -> Record:
    return number % PARTITIONS, json.dumps({"es": 1, "ts": 1} | message).encode(), None


class Deduping:
    """A job with dedupe, whose epochs end when a test says so."""

    def __init__(self, by_hand: ByHand, **spec: Any):
        self.topic = by_hand.topic
        keyed = {"columns": COLUMNS, "primary_key": ["id"], "dedupe": "pk"}
        self.job = by_hand.job({"query": QUERY, **keyed, **spec}, partitions=PARTITIONS)

    def epoch(self, records: Iterable[Record]) -> dict[str, Any]:
        self.send(records)
        return self.job.epoch().counters

    def send(self, records: Iterable[Record]) -> None:
        producer = producer_for(self.job.brokers)
        for partition, value, key in records:
            producer.produce(self.topic, value, key, partition)
        assert producer.flush(60) == 0

    def must_be(self, table: Table) -> None:
        assert self.job.results() == table.results()
        assert self.job.pipeline.newest.counters["images"] == len(table.rows)
        self.images_must_be(table)

    def images_must_be(self, table: Table) -> None:
        """The part `rows`, newest row of a key first, as anyone would read it."""
        newest: dict[int, dict[str, Any]] = {}
        for file in live_files(open_table(self.job.root)):
            if file.part == ROWS:
                for row in pq.read_table(self.job.root / file.path).to_pylist():
                    known = newest.get(row["image_id"])
                    if known is None or row["epoch"] >= known["epoch"]:
                        newest[row["image_id"]] = row
        alive = {number: row for number, row in newest.items() if not row["tombstone"]}
        assert {number: (row["image_name"], row["image_cnt"]) for number, row in alive.items()} == {
            number: (row["name"], row["cnt"]) for number, row in table.rows.items()
        }


@pytest.fixture
def deduping(by_hand: ByHand) -> Deduping:
    return Deduping(by_hand)


def test_a_source_that_tells_parts_of_its_history_again_is_exact(deduping: Deduping) -> None:
    table = Table(1)
    output: list[Record] = []
    for _ in range(4):
        fresh = table.changes(30)
        again = output[-20:]  # it goes back to its last acknowledged place
        output += fresh
        counters = deduping.epoch([*again, *fresh])
        assert counters["rows"] >= len(again) + len(fresh)
        deduping.must_be(table)
    whole = deduping.epoch(output)
    deduping.must_be(table)
    assert whole["duplicates"] == whole["rows"] and whole["changelog_rows"] == 0


@pytest.mark.slow
def test_repeated_snapshots_and_a_beginning_in_the_middle_are_exact(deduping: Deduping) -> None:
    table = Table(2)
    table.changes(40)  # nobody told
    deduping.epoch(table.changes(6))
    counters = deduping.epoch(table.snapshot())
    deduping.must_be(table)
    assert counters["changelog_rows"] > 0, "the snapshot told what had been missed"
    deduping.epoch(table.changes(20))
    deduping.must_be(table)
    counters = deduping.epoch(table.snapshot())
    assert (counters["duplicates"], counters["changelog_rows"]) == (len(table.rows), 0)
    deduping.must_be(table)


@pytest.mark.slow
def test_a_retraction_of_a_row_that_is_not_there_is_ignored_and_counted(deduping: Deduping) -> None:
    gone = {"id": "1", "shop": "x", "name": "a", "cnt": "3"}
    counters = deduping.epoch([record(1, {"type": "DELETE", "data": [gone]})])
    assert (counters["unknown_retractions"], counters["duplicates"]) == (1, 1)
    counters = deduping.epoch(
        [record(1, {"type": "UPDATE", "data": [gone], "old": [{"cnt": "2"}]})]
    )
    assert (counters["unknown_retractions"], counters["duplicates"]) == (1, 0)
    assert deduping.job.results() == {("a",): (3, 3, 1)}


def test_lost_caches_new_drivers_and_merged_files_change_nothing(deduping: Deduping) -> None:
    table, job = Table(3), deduping.job
    for round_number in range(6):
        deduping.epoch(table.changes(25))
        if round_number % 2:
            shutil.rmtree(job.cache)
        if round_number == 3:
            merge_rows(job)
        if round_number == 4:
            job.time_epoch()
        job.restart()
        deduping.must_be(table)


def test_rows_that_change_their_keys_are_exact_in_any_order_of_the_partitions(
    deduping: Deduping,
) -> None:
    table, job = MovingTable(11), deduping.job
    waiting: list[Record] = []
    for round_number in range(6):
        waiting += table.changes(40)
        # One partition is read later than the other one.
        late = round_number % PARTITIONS
        deduping.epoch([each for each in waiting if each[0] != late])
        waiting = [each for each in waiting if each[0] == late]
        if round_number == 2:
            merge_rows(job)
            shutil.rmtree(job.cache)
            job.restart()
    counters = deduping.epoch(waiting)
    deduping.must_be(table)
    assert counters["keys_in_several_partitions"] == 0
    report = deduping.job.audit()
    assert report.differing == 0
    assert (report.verdict == "equal") == (not report.odd) == (not report.doubts)


def test_a_truncate_retracts_the_rows_from_before_it_whenever_they_are_read(
    by_hand: ByHand,
) -> None:
    """canal sends it to partition 0; before and after it, the other partition is read."""
    source = {"database": "shop", "table": "t"}
    made = Deduping(by_hand, source=source, on_truncate="apply")
    table, job = Table(12), made.job

    def at(second: int, records: Iterable[Record]) -> list[Record]:
        more = {"database": "shop", "table": "t", "es": 1_000 * second, "ts": 1_000 * second + 300}
        return [
            (to, json.dumps(json.loads(value or b"") | more).encode(), key)
            for to, value, key in records
        ]

    def truncate(second: int) -> list[Record]:
        table.rows.clear()
        return at(second, [record(0, {"type": "TRUNCATE", "data": None, "isDdl": True})])

    made.epoch(at(1, table.changes(40)))
    before = at(2, table.changes(20))
    behind = [each for each in before if each[0] == 1]
    emptied = [each for each in before if each[0] == 0] + truncate(3)
    refilled = at(4, table.changes(10))
    counters = made.epoch([*emptied, *refilled[:5]])
    assert (counters["truncations"], counters["ambiguous_keys"]) == (1, 0)
    shutil.rmtree(job.cache)
    job.restart()
    made.epoch([*behind[:3], *refilled[5:]])
    job.time_epoch()
    job.restart()
    # Partition 1 tells old rows again, which are older than the TRUNCATE, and then the new ones.
    made.epoch([*behind, *(each for each in refilled if each[0] == 1), *at(5, table.changes(10))])
    made.must_be(table)
    report = job.audit()
    assert (report.verdict, report.differing) == ("equal", 0)

    within = record(
        1, {"type": "INSERT", "data": [texts({"id": 13, "shop": "x", "name": "a", "cnt": 3})]}
    )
    counters = made.epoch([*at(6, [within]), *truncate(6)])
    assert (counters["ambiguous_keys"], counters["doubtful_keys"]) == (1, ["(13,)"])
    assert job.results() == {("a",): (3, 3, 1)}
    report = job.audit()
    assert (report.verdict, report.odd) == ("undecided", {"ambiguous_keys": 1})
    assert "just before or just after a TRUNCATE" in report.doubts[0]


def test_a_topic_that_is_hashed_by_another_column_is_noticed(deduping: Deduping) -> None:
    """The changes of a key then have no order, so neither the job nor an audit can be right."""
    row = {"id": "1", "shop": "x", "name": "a", "cnt": "3"}
    key = record(1, {"type": "INSERT", "data": [row]})
    counters = deduping.epoch([key, (0, *record(2, {"type": "DELETE", "data": [row]})[1:])])
    assert (counters["keys_in_several_partitions"], counters["doubtful_keys"]) == (1, ["(1,)"])
    report = deduping.job.audit()
    assert (report.verdict, report.odd) == ("undecided", {"keys_in_several_partitions": 1})
    assert report.doubts == [f"key (1,) is set at {deduping.topic}/0/0 and at {deduping.topic}/1/0"]


@pytest.mark.slow
def test_a_rewind_an_evolution_and_a_clone_take_along_what_is_known_of_keys(
    deduping: Deduping, broker: Broker
) -> None:
    """Only the state has the changes of keys whose counterparts in partition 1 are read later."""
    table, job = MovingTable(8), deduping.job
    changes = table.changes(80)
    for read in range(PARTITIONS):
        deduping.epoch([each for each in changes if each[0] == read])
    deduping.must_be(table)
    other = clone_spec(job.spec, "other")
    clone(job.place, JobDirectory(job.home, other.name), other, "1")
    assert job.rewind("1").row is not None
    query = QUERY.replace(" FROM", ", MIN(cnt) AS low FROM")
    evolved = load_spec(job.spec.document() | {"query": query})
    assert evolve(job.place, evolved).row is not None
    for spec in (evolved, other):
        again = EpochsByHand(job.spark, job.brokers, job.home, spec)
        again.epoch()
        results = {key: row[:3] for key, row in again.results().items()}
        assert results == table.results()
        assert again.pipeline.newest.counters["images"] == len(table.rows)
        for key, (_, _, rows) in results.items():
            assert TableReader.open(again.place).explain(key).row_count == rows


def merge_rows(job: EpochsByHand) -> None:
    """All files of the part in one base, committed as compaction does."""
    table = job.pipeline.table
    old = [file for file in table.live_files() if file.part == ROWS]
    before = sum(file.rows for file in old)
    added = merge_files(job.plan, job.root, Merge(ROWS, BASE_TIER, tuple(old)), "merged")
    table.commit(added, old, uuid="merged", what="compaction")
    assert sum(file.rows for file in added) < before


def test_an_epoch_computed_twice_is_applied_once(
    deduping: Deduping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver dies after the tasks: its files and what was remembered are nobody's."""
    table, job = Table(4), deduping.job
    deduping.epoch(table.changes(30))
    deduping.send(table.changes(30))
    ends = job.ends()

    def dies(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(EpochTable, "commit_epoch", dies)
        job.epoch(ends)
    job.restart()
    job.epoch(ends)
    deduping.must_be(table)
    deduping.epoch(table.changes(30))
    deduping.must_be(table)


@pytest.mark.slow
def test_upserts_and_tombstones_are_enough(by_hand: ByHand) -> None:
    made = Deduping(by_hand, source={"format": "upsert-json"})
    table = Table(5)
    for _ in range(4):
        before = {number: dict(row) for number, row in table.rows.items()}
        table.changes(25)
        records: list[Record] = []
        for number in range(12):
            row = table.rows.get(number)
            if row != before.get(number) or (row is not None and number % 3 == 0):
                value = None if row is None else json.dumps(row).encode()
                records.append((number % PARTITIONS, value, json.dumps({"id": number}).encode()))
        made.epoch(records)
        made.must_be(table)
    counters = made.epoch([(0, None, None)])
    assert counters["quarantined"] == 1, "a tombstone that names no row"
    made.must_be(table)


def test_debezium_without_images_before_is_exact(by_hand: ByHand) -> None:
    """As PostgreSQL writes with its default replica identity."""
    made = Deduping(by_hand, source={"format": "debezium-json"})
    table = Table(6)
    for _ in range(3):
        records: list[Record] = []
        for _ in range(25):
            before = dict(table.rows)
            partition, output, _ = table.change()
            assert output is not None
            number = int(json.loads(output)["data"][0]["id"])
            after = table.rows.get(number)
            op = "c" if number not in before else "u" if after else "d"
            key = {"id": number, "shop": None, "name": None, "cnt": None}
            message = {"before": key if op == "d" else None, "after": after, "op": op}
            records.append((partition, json.dumps(message).encode(), None))
        made.epoch(records)
        made.must_be(table)


FAILING = "SELECT name, SUM(10 / cnt) AS total FROM t GROUP BY name"


@pytest.mark.slow
def test_a_message_whose_row_fails_is_not_applied_and_the_one_before_it_counts(
    by_hand: ByHand,
) -> None:
    made = Deduping(by_hand, query=FAILING)
    good = {"id": "1", "shop": "x", "name": "a", "cnt": "5"}
    zero = good | {"cnt": "0"}
    insert = record(1, {"type": "INSERT", "data": [good]})
    bad = [record(1, {"type": "INSERT", "data": [zero | {"shop": shop}]}) for shop in "pqr"]
    other = record(0, {"type": "INSERT", "data": [good | {"id": "2"}]})
    counters = made.epoch([insert, *bad, other])
    assert counters["quarantined"] == 3
    assert made.job.results() == {("a",): (4,)}
    # A row that is taken away is looked up and not evaluated.
    counters = made.epoch([record(1, {"type": "DELETE", "data": [zero]})])
    assert counters["quarantined"] == 0
    assert made.job.results() == {("a",): (2,)}


@pytest.mark.slow
def test_a_key_of_several_columns_and_a_query_that_uses_none_of_them(by_hand: ByHand) -> None:
    query = "SELECT COUNT(*) AS n FROM t"
    made = Deduping(by_hand, query=query, primary_key=["shop", "id"])
    table = Table(7)
    pairs: set[tuple[str, str]] = set()
    records = table.changes(60)
    for _, value, _ in records:
        assert value is not None
        message = json.loads(value)
        (row,) = message["data"]
        if message["type"] != "INSERT":
            before = row | message.get("old", [{}])[0]
            pairs.discard((before["shop"], before["id"]))
        if message["type"] != "DELETE":
            pairs.add((row["shop"], row["id"]))
    half = len(records) // 2
    made.epoch(records[:half])
    made.epoch(records[half - 10 :])
    assert made.job.results() == {(): (len(pairs),)}
