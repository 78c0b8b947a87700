"""A snapshot, then the topic: the results are the query over the table, whatever happens between.

history of a table ─┬─ rows of each part, at a moment of its own ─► files, a database ─┐
                    └─ messages ─► Kafka ──────────────────────────────────────────────┴─► job
                 its last rows ─► DuckDB ─► the results
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from kafka import TopicPartition
from pyarrow import csv

from jobs.changing.evolve import CannotEvolve, prepare_replay
from jobs.checking.audit import CannotAudit
from jobs.core.fold.state import Key
from jobs.core.plan.tree import Column
from jobs.core.values.change import Row
from jobs.edge.process.broker import Broker
from jobs.edge.spark.snapshot_source import SnapshotMisfit, SnapshotSource
from jobs.running import snapshot as running
from jobs.running.failure import SpecMisfit
from jobs.running.outcome import InputRefused
from schemas.spec.connections import Connections, Database
from schemas.spec.file import load_spec
from schemas.spec.snapshot import JdbcTable, Snapshot
from schemas.table.epoch import EpochRow
from schemas.table.snapshot import SnapshotPlan
from schemas.types.sql_types import SqlType
from tests.support.jobs.epochs_by_hand import ByHand, EpochsByHand
from tests.support.jobs.running_job import (
    RUN_SECONDS_MAX,
    RunningJob,
    create_topic,
    produce,
    producer_for,
)
from tests.support.jobs.worker_session import worker_session
from tests.support.topics import admin_client

pytestmark = pytest.mark.spark

COLUMNS = {"id": "BIGINT", "name": "STRING", "price": "DECIMAL(8, 2)", "seen": "TIMESTAMP(3)"}
QUERY = (
    "SELECT name, SUM(price) AS total, MAX(price) AS top, MAX(seen) AS newest, COUNT(*) AS n "
    "FROM t GROUP BY name"
)
PARTITIONS, PARTS, KEYS = 2, 3, 40
STALL_SECONDS = 5
Texts = dict[str, str | None]


class Table:
    """A table whose rows come, change, go and get other keys, with canal's messages."""

    def __init__(self, seed: int, keys: int = KEYS) -> None:
        self.random, self.keys = Random(seed), keys
        self.rows: dict[int, Texts] = {}
        self.time = 1_700_000_000_000

    def change(self) -> tuple[int, bytes]:
        random, key = self.random, self.random.randrange(self.keys)
        self.time += 1
        before, after = self.rows.get(key), self._row(key)
        if before is None:
            return self._set(key, after, {"type": "INSERT", "data": [after]})
        kind = random.random()
        if kind < 0.2:
            del self.rows[key]
            return self._message(key, {"type": "DELETE", "data": [before]})
        free = [each for each in range(self.keys) if each not in self.rows]
        if kind < 0.4 and free:
            after = {**before, "id": str(random.choice(free))}
            del self.rows[key]
        old = {name: value for name, value in before.items() if after[name] != value}
        return self._set(
            int(after["id"] or 0), after, {"type": "UPDATE", "data": [after], "old": [old]}
        )

    def changes(self, count: int) -> list[tuple[int, bytes]]:
        return [self.change() for _ in range(count)]

    def results(self) -> dict[Key, Row]:
        """The query over the rows, by DuckDB."""
        rows = pa.Table.from_pylist(
            list(self.rows.values()), pa.schema([(name, pa.string()) for name in COLUMNS])
        )
        database = duckdb.connect()
        database.register("rows", rows)
        casts = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in COLUMNS.items())
        casts = casts.replace("TIMESTAMP(3)", "TIMESTAMP")
        query = QUERY.replace("FROM t", f"FROM (SELECT {casts} FROM rows)")
        query = query.replace("SUM(price)", "CAST(SUM(price) * 100 AS BIGINT)")
        query = query.replace("MAX(price)", "CAST(MAX(price) * 100 AS BIGINT)")
        query = query.replace("MAX(seen)", "epoch_us(MAX(seen))")
        return {(name,): tuple(row) for name, *row in database.execute(query).fetchall()}

    def _row(self, key: int) -> Texts:
        random = self.random
        return {
            "id": str(key),
            "name": random.choice(["a", "b", "ä", None]),
            "price": random.choice(["1.25", "-3.50", "100.00", None]),
            "seen": f"2026-01-0{random.randrange(1, 9)} 10:00:00.{random.randrange(1_000):03}",
        }

    def _set(self, key: int, row: Texts, message: dict[str, Any]) -> tuple[int, bytes]:
        self.rows[key] = row
        return self._message(key, message)

    def _message(self, key: int, message: dict[str, Any]) -> tuple[int, bytes]:
        return key % PARTITIONS, json.dumps({"es": self.time, "ts": self.time} | message).encode()


class Loading:
    """A job that reads a snapshot; its table goes on changing meanwhile."""

    def __init__(self, by_hand: ByHand, snapshot: dict[str, Any], **keys: Any) -> None:
        source = {"snapshot": snapshot, "start": "earliest"}
        rows = {"columns": COLUMNS, "primary_key": ["id"], "dedupe": "pk", "query": QUERY}
        self.job: EpochsByHand = by_hand.job(
            {"source": source, **rows, **keys}, partitions=PARTITIONS
        )
        self.topic = by_hand.topic

    def read(self, parts: int = 99) -> list[EpochRow]:
        """Read some of the parts, as a process that is stopped then; return the epochs of all."""
        left = [parts]

        def between() -> None:
            left[0] -= 1

        running.read_snapshots(
            self.job.pipeline,
            Connections({}, {}, {"shop": Database("shop", URL)}),
            is_stopping=lambda: left[0] <= 0,
            report=lambda progress: None,
            between=between,
        )
        return [row for row in self.job.epochs() if row.counts.snapshot_part is not None]

    def send(self, messages: list[tuple[int, bytes]]) -> None:
        producer = producer_for(self.job.brokers)
        for partition, value in messages:
            producer.produce(self.topic, value, None, partition)
        assert producer.flush(60) == 0


URL = "jdbc:derby:memory:shop"


def write_derby(
    url: str, directory: Path, table: str, kinds: str, rows: Sequence[Sequence[object]]
) -> None:
    """Write a table of Derby; Spark would make a CLOB of a text, which has no order."""
    jvm: Any = worker_session.spark.sparkContext._jvm
    jvm.System.setProperty("derby.stream.error.file", str(directory / "derby.log"))
    connection = jvm.java.sql.DriverManager.getConnection(url)
    texts = ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
    try:
        statement = connection.createStatement()
        statement.executeUpdate(f"CREATE TABLE {table} {kinds}")
        statement.executeUpdate(f"INSERT INTO {table} VALUES {texts}")
    finally:
        connection.close()


def literal(value: object) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "NULL" if value is None else str(value)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a snapshot; four of its files are a part."""
    monkeypatch.setenv("RETALLY_FILES", str(tmp_path))
    monkeypatch.setattr("jobs.edge.spark.snapshot_source.SNAPSHOT_PART_PIECES", 1)
    monkeypatch.setattr("jobs.edge.spark.snapshot_source.SNAPSHOT_PIECE_FILES", 4)
    (tmp_path / "rows").mkdir()
    return tmp_path / "rows"


def write_part(files: Path, part: int, rows: list[Texts]) -> None:
    """Write rows as Parquet, four files of one size each."""
    kinds = [("id", pa.int64()), ("price", pa.decimal128(8, 2)), ("seen", pa.timestamp("us"))]
    for number in range(4):
        texts = pa.Table.from_pylist(
            rows[number::4], pa.schema([(name, pa.string()) for name in COLUMNS])
        )
        for name, kind in kinds:
            at = texts.schema.get_field_index(name)
            texts = texts.set_column(at, name, texts[name].cast(kind))
        pq.write_table(texts, files / f"{part}{number}.parquet", compression="none")


@pytest.mark.parametrize("seed", range(3))
def test_a_snapshot_whose_parts_are_of_different_moments_is_exact_with_the_topic(
    by_hand: ByHand, files: Path, seed: int
) -> None:
    table = Table(seed)
    table.changes(60)  # before the topic
    messages = []
    for part in range(PARTS):
        mine = [dict(row) for key, row in table.rows.items() if key % PARTS == part]
        write_part(files, part, mine)
        messages += table.changes(15)
    loading = Loading(by_hand, {"parquet": str(files)})
    first = loading.read(1)
    loading.send(messages)
    loading.job.restart()  # as after a kill
    rows = loading.read()
    assert len(first) == 1
    parts = [row.counts.snapshot_part for row in rows]
    known = [(each.part, each.parts) for each in parts if each is not None]
    assert known == [(1, PARTS), (2, PARTS), (3, PARTS)]
    assert all(row.offsets == rows[0].offsets for row in rows)
    loading.send(table.changes(15))
    loading.job.epoch()
    assert loading.job.results() == table.results()
    assert loading.job.pipeline.newest.counts.images == len(table.rows)
    assert loading.read() == rows, "a snapshot is read once"
    assert loading.job.epochs()[-1].counts.snapshot[""].rows == sum(row.counts.rows for row in rows)
    with pytest.raises(CannotAudit, match="began with a snapshot"):
        loading.job.audit()
    with pytest.raises(CannotEvolve, match="began with a snapshot"):
        changed = loading.job.spec.document() | {"query": "SELECT COUNT(*) AS n FROM t"}
        prepare_replay(loading.job.place, load_spec(changed))


def test_a_rewind_into_the_snapshot_reads_the_rest_again(by_hand: ByHand, files: Path) -> None:
    table = Table(7)
    table.changes(60)
    for part in range(PARTS):
        write_part(files, part, [row for key, row in table.rows.items() if key % PARTS == part])
    loading = Loading(by_hand, {"parquet": str(files)})
    rows = loading.read()
    loading.send(table.changes(20))
    loading.job.epoch()
    loading.job.rewind(str(rows[0].epoch))
    loading.job.restart()
    loading.read()
    loading.job.epoch()
    assert loading.job.results() == table.results()


@pytest.mark.parametrize("change", ["a file more", "another time of a file"])
def test_files_that_have_changed_between_two_parts_are_refused(
    by_hand: ByHand, files: Path, change: str
) -> None:
    table = Table(8)
    table.changes(60)
    for part in range(PARTS):
        write_part(files, part, [row for key, row in table.rows.items() if key % PARTS == part])
    loading = Loading(by_hand, {"parquet": str(files)})
    loading.read(1)
    if change == "a file more":
        write_part(files, PARTS, [])
    else:
        os.utime(next(files.glob("*.parquet")), (0, 0))
    with pytest.raises(SnapshotMisfit, match="changed since its first part was read; 1 of 3"):
        loading.read()
    without = loading.job.spec.document()
    del without["source"]["snapshot"]
    with pytest.raises(SpecMisfit, match=r"source.snapshot is not read to its end \(1 parts\)"):
        running.require_same_snapshots(load_spec(without), loading.job.pipeline.newest)


@pytest.mark.parametrize("kind, given", [("parquet", "bigint"), ("csv", "string")])
def test_a_part_of_small_rows_has_few_of_them_at_each_start(
    files: Path, monkeypatch: pytest.MonkeyPatch, kind: str, given: str
) -> None:
    monkeypatch.setattr("jobs.edge.spark.snapshot_source.SNAPSHOT_PART_ROWS", 4_000)
    rows = pa.table({"id": pa.array(Random(11).sample(range(10**9, 10**10), 40_000))})
    if kind == "parquet":
        pq.write_table(rows, files / "rows.parquet", row_group_size=500)
    else:
        csv.write_csv(rows, files / "rows.csv")
    column = Column("id", SqlType.parse("BIGINT"))
    snapshot = Snapshot.model_validate({kind: str(files)})

    def source() -> SnapshotSource:
        return SnapshotSource(worker_session.spark, snapshot, (column,), Connections({}), 2)

    plan, found, sizes = source().make_plan(), list[int](), list[int]()
    for part in range(plan.parts):
        opened = source().open(plan, part)
        table = opened.run(lambda batches: batches, f"id {given}").collect()
        found += [int(row[0]) for row in table]
        sizes.append(len(table))
    assert sorted(found) == sorted(rows["id"].to_pylist())
    assert max(sizes) <= 4_500, "one more row group"
    assert 10 <= plan.parts < 15


@pytest.mark.parametrize(
    "price, columns, reason",
    [
        ("123456789", COLUMNS, "column price: "),
        ("12", {**COLUMNS, "id": "TINYINT"}, "column id: "),
        ("0", COLUMNS, "the row is id = 300, name = 'a', price = 0"),
    ],
)
def test_a_value_that_does_not_fit_stops_the_job(
    by_hand: ByHand, files: Path, price: str, columns: dict[str, str], reason: str
) -> None:
    lines = ["id,name,price,seen", f"300,a,{price},2026-01-01 00:00:00"]
    (files / "rows.csv").write_text("\n".join(lines) + "\n")
    query = "SELECT name, SUM(1 / price) AS r, MAX(seen) AS s, COUNT(id) AS n FROM t GROUP BY name"
    loading = Loading(by_hand, {"csv": str(files)}, columns=columns, query=query)
    with pytest.raises(InputRefused) as refused:
        loading.read()
    assert reason in str(refused.value), refused.value


@pytest.mark.parametrize("key", ["id", "name"])
def test_a_table_of_a_database_is_read_in_ranges_of_its_key(
    by_hand: ByHand, tmp_path: Path, key: str
) -> None:
    table = Table(9)
    table.changes(80)
    kinds = "(id BIGINT, name VARCHAR(10), price DECIMAL(8, 2), seen TIMESTAMP)"
    rows = [
        (at, row["name"], row["price"] and Decimal(row["price"]), row["seen"])
        for at, row in table.rows.items()
    ]
    write_derby(f"{URL};create=true", tmp_path, f"orders_by_{key}", kinds, rows)
    place = {"connection": "shop", "table": f"orders_by_{key}", "key": key, "parts": PARTS}
    loading = Loading(by_hand, {"jdbc": place})
    loading.send(table.changes(30))
    loading.read(1)
    loading.job.restart()  # as after a kill
    epochs = loading.read()
    assert 1 < len(epochs) <= PARTS
    parts = [epoch.counts.snapshot_part for epoch in epochs]
    assert [each.part for each in parts if each is not None] == [*range(1, len(epochs) + 1)]
    assert min(epoch.counts.rows for epoch in epochs) > 0
    loading.job.epoch()
    assert loading.job.results() == table.results()


@pytest.mark.parametrize("collation", ["UCS_BASIC", "TERRITORY_BASED:PRIMARY"])
@pytest.mark.parametrize("seed", range(2))
def test_the_parts_by_a_text_key_have_each_row_of_the_database_once(
    tmp_path: Path, collation: str, seed: int
) -> None:
    """PRIMARY has one rank for a, A and ä, so that a page of so many rows would cut equal keys."""
    random, spark = Random(seed), worker_session.spark
    words = ["a", "A", "ä", "ab", "aB", "o'clock", "back\\", "what?", "Zoë", "z", " ", "日本"]
    keys = [random.choice([None, *words, random.choice(words) + str(at % 50)]) for at in range(400)]
    url = f"jdbc:derby:memory:texts{seed}{collation[:3]}"
    created = f"{url};create=true;territory=en_US;collation={collation}"
    kinds = "(id BIGINT, code VARCHAR(40))"
    write_derby(created, tmp_path, "words", kinds, list(enumerate(keys)))
    table = JdbcTable(connection="shop", table="words", key="code", parts=7)
    column = Column("id", SqlType.parse("BIGINT"))
    connections = Connections({}, {}, {"shop": Database("shop", url)})

    def source(tasks: int) -> SnapshotSource:
        return SnapshotSource(spark, Snapshot(jdbc=table), (column,), connections, tasks)

    plan, part, sizes, found = source(2).make_plan(), 0, list[int](), list[int]()
    while part < plan.parts:
        rows = source(random.randrange(1, 4)).open(plan, part)  # as each start may have other cores
        got = [row[0] for row in rows.frame.collect()]
        assert sorted(got) == select(
            url, f"SELECT id FROM words WHERE {condition(plan, rows.plan)}"
        ), "Derby's own rows between the two bounds"
        plan, part, found = rows.plan, part + 1, found + got
        sizes.append(len(got))
    assert sorted(found) == select(url, "SELECT id FROM words")
    assert len(sizes) > 2 and max(sizes) < 300, sizes


def test_a_part_by_a_text_key_ends_behind_hundreds_of_keys_that_cannot_end_it(
    tmp_path: Path,
) -> None:
    url = "jdbc:derby:memory:quoted"
    keys = [f"{first}{at:03}" for first in "'a" for at in range(300)]
    rows = list(enumerate(keys))
    write_derby(f"{url};create=true", tmp_path, "words", "(id BIGINT, code VARCHAR(9))", rows)
    table = JdbcTable(connection="shop", table="words", key="code", parts=3)
    column = Column("id", SqlType.parse("BIGINT"))
    connections = Connections({}, {}, {"shop": Database("shop", url)})
    snapshot = Snapshot(jdbc=table)
    source = SnapshotSource(worker_session.spark, snapshot, (column,), connections, 1)
    opened = source.open(source.make_plan(), 0)
    assert opened.plan.after == "a000"
    assert len(opened.frame.collect()) == 301


def condition(before: SnapshotPlan, after: SnapshotPlan) -> str:
    """The rows from one bound to the next, written in another way than the product does."""
    below = f"(code IS NULL OR NOT code > '{after.after}')" if after.after else "1 = 1"
    above = f"NOT (code <= '{before.after}' OR code IS NULL)" if before.after else "1 = 1"
    return f"{below} AND {above}"


def select(url: str, query: str) -> list[int]:
    jvm: Any = worker_session.spark.sparkContext._jvm
    connection = jvm.java.sql.DriverManager.getConnection(url)
    try:
        rows, found = connection.createStatement().executeQuery(query), list[int]()
        while rows.next():
            found.append(rows.getLong(1))
        return sorted(found)
    finally:
        connection.close()


@pytest.mark.broker
def test_a_job_killed_in_the_middle_of_its_snapshot_goes_on_with_the_next_part(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETALLY_FILES", str(tmp_path))
    table = Table(10, 400)
    table.changes(1_200)
    place, kinds = tmp_path / "orders", pa.schema([(name, pa.string()) for name in COLUMNS])
    rows = pa.Table.from_pylist(list(table.rows.values()), kinds)
    write_deltalake(str(place), rows, partition_by=["id"])  # each row in a file of its own
    files = list(place.glob("*/*.parquet"))
    create_topic(broker.address, topic, PARTITIONS)
    spec = {
        "name": "loaded",
        "source": {"topic": topic, "snapshot": {"delta": str(place)}},
        "columns": COLUMNS,
        "primary_key": ["id"],
        "dedupe": "pk",
        "query": QUERY,
        "mirror": "off",
    }
    run = RunningJob(spec, tmp_path, broker.address)
    run.must_die_at("snapshot_part", "kill@1")
    messages = table.changes(30)
    producer = producer_for(broker.address)
    for partition, value in messages:
        producer.produce(topic, value, None, partition)
    assert producer.flush(60) == 0
    run.must_run_by_itself()
    parts = [row.counts.snapshot_part for row in run.epochs()]
    count = -(-len(files) // 256)  # four pieces, of 64 files each
    wanted = [(part + 1, count) for part in range(count)]
    assert [(each.part, each.parts) for each in parts if each is not None] == wanted
    assert len(wanted) > 1
    found = {row["name"]: row["n"] for row in run.ask("results", "loaded")}
    assert found == {key[0]: row[-1] for key, row in table.results().items()}


@pytest.mark.broker
def test_a_topic_that_loses_records_while_the_snapshot_is_read_stops_the_job(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETALLY_FILES", str(tmp_path))
    rows = tmp_path / "rows.csv"
    rows.write_text("id,name\n1,a\n")
    create_topic(broker.address, topic, 1)
    message = json.dumps({"type": "INSERT", "data": [{"id": "2", "name": "b"}]})
    produce(broker.address, topic, [(0, message.encode())] * 3)
    spec = {
        "name": "loaded",
        "source": {"topic": topic, "snapshot": {"csv": str(rows)}},
        "columns": {"id": "BIGINT", "name": "STRING"},
        "primary_key": ["id"],
        "dedupe": "pk",
        "query": "SELECT name, COUNT(*) AS n FROM t GROUP BY name",
        "mirror": "off",
    }
    run = RunningJob(spec, tmp_path, broker.address)
    process = run.start(f"snapshot_part=stall:{STALL_SECONDS}")
    try:
        while not run.fired("snapshot_part"):
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.1)
        with admin_client(broker.address) as admin:
            admin.delete_records({TopicPartition(topic, 0): 2})
        output, _ = process.communicate(timeout=RUN_SECONDS_MAX)
    finally:
        process.kill()
    assert process.returncode == 1, output
    assert f"{topic}/0: the job is at offset 0, but retention has removed" in output
    assert "raise its retention above that time" in output
    assert [row.counts.read for row in run.epochs() if row.kind == "data"] == [0]
