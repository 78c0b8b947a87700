"""docs/consuming.md, run as it stands: what the job's publisher wrote, folded by each program.

a folded table ─► JobPublisher (as a job has it) ─► a real broker ─► a program of the page
"""

from __future__ import annotations

import ast
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from kafka import KafkaAdminClient, TopicPartition

from jobs.edge.machine.jars import broker_classpath
from jobs.edge.process.broker import Broker
from jobs.edge.publisher.handle import PublisherFailed
from jobs.edge.publisher.job_publisher import JobPublisher
from schemas.spec.connections import load_connections
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec
from schemas.table.changelog import SINKS_OF_REGISTRY, SinkFormat
from tests.docs.documents import RESULT_COLUMNS, Items, Row, block, ordered
from tests.support.documents import CHECKOUT, COLUMNS, QUERY, TABLE_IN_DOCS
from tests.support.network.schema_registry import FakeRegistry, open_registry
from tests.support.published_changelog import SHARE_0, place_fault
from tests.support.sampling import quick
from tests.support.topics import committed_records

WAIT_SECONDS = 60
FORMATS = {
    "changelog-json": "apply_changelog",
    "canal-json": "apply_canal",
    "debezium-json": "apply_debezium",
    "upsert-json": "apply_upsert",
}
Publish = Callable[[], None]


def spec_of(topic: str, name: SinkFormat, publishers: int) -> JobSpec:
    sink: dict[str, Any] = {"topic": topic, "format": name, "partitions": 2}
    sink |= {"publishers": publishers}
    sink |= {"schema_registry": "registry"} if name in SINKS_OF_REGISTRY else {}
    source = {"topic": "shop.product"}
    return load_spec(
        {"name": "items", "source": source, "columns": COLUMNS, "query": QUERY, "sink": sink}
    )


@pytest.fixture
def items(tmp_path: Path) -> Items:
    table = Items(tmp_path / "epochs")
    table.first()
    return table


@pytest.fixture
def publish(items: Items, broker: Broker, topic: str) -> Publish:
    """Everything that the table has and the topic lacks, as a start of the job would do."""

    def send(
        name: SinkFormat = "changelog-json",
        to: str = topic,
        publishers: int = 1,
        registry: FakeRegistry | None = None,
    ) -> None:
        connection = load_connections(None, broker.address).lookup("default")
        spec = spec_of(to, name, publishers)
        publishing = JobPublisher(
            *(spec, {"": items.plan}, items.table, items.newest, connection),
            {} if registry is None else {"registry": registry.connection()},
        ).start()
        try:
            publishing.drain()
        finally:
            publishing.close()

    return send


def program(about: str, kind: str, broker: Broker, topic: str) -> str:
    found = block("consuming.md", kind, about)
    assert "localhost:9092" in found
    return found.replace("localhost:9092", broker.address).replace("items-changes", topic)


def wait_until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not true():
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(0.05)


# --- the formats ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", quick(FORMATS, ["changelog-json"]))
def test_each_function_folds_its_format(
    items: Items, publish: Any, broker: Broker, topic: str, name: SinkFormat
) -> None:
    publish(name)
    functions: dict[str, Any] = {}
    exec(block("consuming.md", "python", "apply_canal"), functions)
    results: dict[bytes, Row] = {}
    for record in committed_records(broker.address, topic):
        functions[FORMATS[name]](results, record.key, record.value)
    rows = list(results.values())
    if name == "canal-json":  # values are text there
        rows = [{c: v if c == "name" else int(v) for c, v in row.items()} for row in rows]
    assert ordered(rows) == items.results()


def test_the_program_for_avro_prints_the_current_results(
    items: Items, publish: Any, broker: Broker, topic: str
) -> None:
    """Confluent's own deserializer reads keys and values, also those of a second start."""
    source = program("AvroDeserializer", "python", broker, topic)
    with open_registry() as registry:
        for change in (None, items.second):
            if change is not None:
                change()
            publish("avro", registry=registry)
            command = [sys.executable, "-c", source.replace("http://localhost:8081", registry.url)]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS)
            assert ran.returncode == 0, ran.stderr
            rows = [ast.literal_eval(line) for line in ran.stdout.splitlines()]
            assert ordered(rows) == items.results()
        assert registry.subjects == {f"{topic}-key", f"{topic}-value"}
        registry.forget()
        registry.take("/subjects/other/versions", {"schema": '"int"'})
        with pytest.raises(PublisherFailed, match=r"keys in topic .* Avro of schema 1, and those"):
            publish("avro", registry=registry)


# --- programs -------------------------------------------------------------------------------------


def test_the_copy_in_sqlite_is_the_table_over_a_kill(
    items: Items, publish: Publish, broker: Broker, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "copy.py").write_text(program("sqlite3", "python", broker, topic))
    publish()

    def copy() -> list[Row]:
        if not (tmp_path / "copy.sqlite").exists():
            return []
        database = sqlite3.connect(tmp_path / "copy.sqlite")
        try:
            found = database.execute("SELECT row FROM results").fetchall()
            return ordered(json.loads(row) for (row,) in found)
        except sqlite3.OperationalError:  # it makes its tables in this moment
            return []
        finally:
            database.close()

    running = subprocess.Popen([sys.executable, "copy.py"], cwd=tmp_path)
    try:
        wait_until(lambda: copy() == items.results())
        running.send_signal(signal.SIGKILL)
        running.wait()
        items.second()
        publish()
        assert copy() != items.results()
        running = subprocess.Popen([sys.executable, "copy.py"], cwd=tmp_path)
        wait_until(lambda: copy() == items.results())
        assert running.poll() is None
    finally:
        running.kill()
        running.wait()


@pytest.mark.slow
def test_a_consumer_begins_with_the_table_when_the_head_of_the_topic_is_gone(
    items: Items, publish: Publish, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """The table is copied, so that what the program finds there is older than the topic's end."""
    publish()
    copy = shutil.copytree(items.root, tmp_path / "as of epoch 3")
    client = KafkaAdminClient(bootstrap_servers=[broker.address])
    client.delete_records({TopicPartition(topic, 0): -1, TopicPartition(topic, 1): -1})
    client.close()
    items.second()
    publish()
    source = program("consumer_timeout_ms", "python", broker, topic)
    assert TABLE_IN_DOCS in source
    ran = subprocess.run(
        [sys.executable, "-c", source.replace(TABLE_IN_DOCS, str(copy))],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert ran.returncode == 0, ran.stderr
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ordered(rows) == items.results() != items.results(3)


def test_the_results_of_one_epoch_are_those_of_the_progress(
    items: Items, publish: Publish, broker: Broker, topic: str
) -> None:
    publish()
    source = program("read_uncommitted", "python", broker, topic)
    ran = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=WAIT_SECONDS
    )
    assert ran.returncode == 0, ran.stderr
    told, *rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert told == {"epoch": 3, "watermark": None}
    assert ordered(rows) == items.results(3)


def test_the_results_of_one_epoch_are_whole_while_one_of_two_publishers_is_ahead(
    items: Items, publish: Any, broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(publishers=2)
    items.second()
    place_fault(monkeypatch, SHARE_0, "publish_produced=kill@1")
    with pytest.raises(PublisherFailed, match="died"):
        publish(publishers=2)
    table = items.table.handle.metadata().id
    stray = Producer(
        {"bootstrap.servers": broker.address, "transactional.id": f"retally-items-{table}"}
    )
    stray.init_transactions(WAIT_SECONDS)  # ends what the killed one has left open
    epochs = {json.loads(each.value)["epoch"] for each in committed_records(broker.address, topic)}
    assert max(epochs) > 3
    source = program("read_uncommitted", "python", broker, topic)
    ran = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=WAIT_SECONDS
    )
    assert ran.returncode == 0, ran.stderr
    told, *rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert told == {"epoch": 3, "watermark": None}
    assert ordered(rows) == items.results(3)


@pytest.mark.slow
def test_the_java_program_prints_the_current_results(
    items: Items, publish: Publish, broker: Broker, topic: str, tmp_path: Path
) -> None:
    if shutil.which("javac") is None:
        pytest.skip("NOT COMPILED: there is no javac, only a runtime of Java")
    publish()
    (tmp_path / "Fold.java").write_text(program("class Fold", "java", broker, topic))
    jars = broker_classpath()
    compiler = ["javac", "-Werror", "-cp", jars, "Fold.java"]
    made = subprocess.run(compiler, cwd=tmp_path, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    runtime = ["java", "-Xmx128m", "-Dfile.encoding=UTF-8", "-cp", f".:{jars}", "Fold"]
    ran = subprocess.run(runtime, cwd=tmp_path, capture_output=True, timeout=WAIT_SECONDS)
    assert ran.returncode == 0, ran.stderr
    rows = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith(b"{")]
    assert ordered(rows) == items.results()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_spark_query_keeps_a_table_over_two_runs(
    items: Items, publish: Publish, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """In a process of its own: Delta's settings are those of a session's beginning."""
    source = program("foreachBatch", "python", broker, topic)
    source = source.replace('"items-copy', f'"{tmp_path}/items-copy')
    begin = "from jobs.edge.spark.session import session\nspark = session('docs', delta=True)\n"
    twice = f"{begin}{source}\nprint('once', flush=True)\ninput()\n{source}\nprint('twice')\n"
    publish()
    running = subprocess.Popen(
        [sys.executable, "-c", twice],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stdout is not None
        for word, answer in (("once", "go on\n"), ("twice", "")):
            assert running.stdout.readline() == f"{word}\n"
            rows = DeltaTable(str(tmp_path / "items-copy")).to_pyarrow_table().to_pylist()
            assert ordered(rows) == items.results()
            items.second()
            publish()
            assert running.stdin is not None
            running.stdin.write(answer)
            running.stdin.flush()
    finally:
        running.kill()
        running.communicate()


# --- the table ------------------------------------------------------------------------------------


def test_the_changelog_in_the_table_folds_to_the_results(items: Items) -> None:
    connection = duckdb.connect()
    connection.register("epochs", DeltaTable(str(items.root)).to_pyarrow_dataset())
    statements = block("consuming.md", "sql", "changelog").split(";")
    folded, after, counted = (connection.sql(text).fetchall() for text in statements[:3])
    rows = [dict(zip(RESULT_COLUMNS, row, strict=True)) for row in folded]
    assert ordered(rows) == items.results()
    assert [row[0] for row in after] == [e for e, _, _ in items.changelog if e > 1]
    assert counted == [(1, 3, 0), (2, 1, 1), (3, 2, 0)]
