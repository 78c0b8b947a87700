"""Files as a source: a job over a directory is the query over its files, through kills.

files, some of them after the kill ──► retally run, killed ──► run again ──► results
   └──► DuckDB's own read_csv, read_json ─────────────────────────────────────► the same
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import duckdb
import pytest

from jobs.edge.process.broker import Broker
from jobs.edge.table.delta_epochs import EpochTable
from jobs.running.file_reading import FileReading
from schemas.spec.file import load_spec
from tests.support.histories.judge import QUERIES
from tests.support.histories.products import COLUMNS, DATABASE, TABLE, history
from tests.support.jobs.epochs_by_hand import EpochsByHand
from tests.support.jobs.exact_job import must_end_in_the_truth
from tests.support.jobs.running_job import RUN_SECONDS_MAX, RunningJob, create_topic, produce
from tests.support.jobs.tasks_here import TasksHere
from tests.support.service.served import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOPS = ("a", "b,c", 'd"e', "é", "")
QUERY = (
    "SELECT shop, COUNT(*) AS n, COUNT(amount) AS paid, SUM(amount) AS total, MAX(paid_at) AS last "
    "FROM orders GROUP BY shop"
)
TYPES = {"shop": "VARCHAR", "amount": "DECIMAL(12,2)", "paid_at": "TIMESTAMP"}
NO_BROKER = "localhost:1"  # who reads only files needs none


def order(rng: random.Random) -> dict[str, Any]:
    amount = None if rng.random() < 0.1 else f"{rng.randint(-99, 9_999)}.{rng.randint(0, 99):02}"
    at = f"2026-01-{rng.randint(1, 28):02} 10:{rng.randint(0, 59):02}:00"
    return {"shop": rng.choice(SHOPS), "amount": amount, "paid_at": at}


def csv_line(row: dict[str, Any]) -> str:
    shop = '"' + row["shop"].replace('"', '""') + '"'
    return f"{shop},{'NULL' if row['amount'] is None else row['amount']},{row['paid_at']}"


def write_orders(directory: Path, seed: int, files: int, format: str) -> None:
    """Write files of some hundred rows, the last line of each with or without an end."""
    rng = random.Random(seed)
    for number in range(files):
        rows = [order(rng) for _ in range(rng.randint(0, 300))]
        lines = [csv_line(row) if format == "csv" else json.dumps(row) for row in rows]
        lines = ["shop,amount,paid_at", *lines] if format == "csv" else lines
        end = "\r\n" if number % 2 else "\n"
        path = directory / f".{seed}-{number}"
        path.write_text(end.join(lines) + end * rng.randint(0, 1), newline="")
        os.utime(path, (seed * 100 + number, seed * 100 + number))
        path.rename(directory / f"{seed}-{number}.{format}")


def order_job(directory: Path, format: str, **more: Any) -> RunningJob:
    files = {"path": str(directory), "every": "200ms", "header": format == "csv"}
    section = {"csv": {"fields": list(TYPES), "null_literal": "NULL"}} if format == "csv" else {}
    spec = {
        "name": "orders",
        "source": {"files": files, "format": format, **section},
        "columns": {"shop": "STRING", "amount": "DECIMAL(12, 2)", "paid_at": "TIMESTAMP(6)"},
        "query": QUERY,
        "minibatch": {"max_rows": 150, "size": 1},
        **more,
    }
    return RunningJob(spec, directory.parent, NO_BROKER)


def read_by_duckdb(directory: Path, format: str) -> set[tuple[Any, ...]]:
    columns = ", ".join(f"{name}: '{kind}'" for name, kind in TYPES.items())
    reads = {
        "csv": f"read_csv('{directory}/*.csv', columns={{{columns}}}, header=true, nullstr='NULL', "
        "quote='\"', escape='\"', strict_mode=false, allow_quoted_nulls=false)",
        "json": f"read_json('{directory}/*.json', format='nd', columns={{{columns}}})",
    }
    asked = QUERY.replace("orders", reads[format])
    return set(
        duckdb.connect()
        .execute(f"SELECT shop, n, paid, total::VARCHAR, last::VARCHAR FROM ({asked})")
        .fetchall()
    )


def results(job: RunningJob) -> set[tuple[Any, ...]]:
    rows = [tuple(row.values()) for row in job.ask("results", "orders")]
    return {
        (shop, n, paid, total and str(total), last and last.partition(".")[0])
        for shop, n, paid, total, last in rows
    }


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETALLY_FILES", str(tmp_path))
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def by_hand(data: Path, spec: dict[str, Any], now_ms: int | None = None) -> EpochsByHand:
    spark = cast("SparkSession", TasksHere())  # no JVM either
    return EpochsByHand(spark, NO_BROKER, data, load_spec(spec), now_ms)


@pytest.mark.parametrize("format", ["csv", "json"])
def test_any_epochs_and_restarts_give_the_query_over_the_files(
    format: str, directory: Path
) -> None:
    rng = random.Random(format)
    made = order_job(directory, format)
    job = by_hand(made.data, made.spec)
    path = str(directory)
    for seed in range(1, 5):
        write_orders(directory, seed, 3, format)
        end = job.ends()[path]["0"]
        while (at := job.pipeline.newest.offsets[path]["0"]) < end:
            job.epoch({path: {"0": min(end, at + rng.randint(1, 200))}})
            if rng.random() < 0.3:
                job.restart()
        names = ["shop", "n", "paid", "total", "last"]
        rows = [
            dict(zip(job.plan.output, job._output(*row), strict=True))
            for row in job.results().items()
        ]
        assert {tuple(shown(row[name]) for name in names) for row in rows} == read_by_duckdb(
            directory, format
        )
    newest = job.epochs()[-1]
    assert newest.counts.files == {path: last_line(directory, format)}


def shown(value: Any) -> Any:
    """A value of ours as DuckDB's text has it."""
    return value.partition(".000000")[0] if isinstance(value, str) else value


def last_line(directory: Path, format: str) -> str:
    """The last line of the last file that has one, as an editor numbers it."""
    files = sorted(directory.glob(f"*.{format}"), key=lambda path: path.stat().st_mtime)
    lines = [(path.name, len(path.read_text().splitlines())) for path in files]
    name, number = [each for each in lines if each[1] > (format == "csv")][-1]
    return f"{name} line {number}"


ALIGNED: dict[str, Any] = {
    "format": "csv",
    "csv": {"fields": ["shop", "ms"]},
    "columns": {"shop": "STRING", "ms": "BIGINT"},
    "watermark": {
        "time": {"column": "ms"},
        "align": {"group": "g", "max_drift": "40s", "every": "10ms"},
    },
}


def aligned_job(data: Path, fast: Path, late: dict[str, Any], brokers: str) -> EpochsByHand:
    """A job of two sources, of which neither may be 40 s ahead of the other one."""
    query = "SELECT shop, COUNT(*) AS n FROM {} GROUP BY shop"
    spec = {
        "name": "aligned",
        "sources": {"fast": {"files": {"path": str(fast)}, **ALIGNED}, "late": {**late, **ALIGNED}},
        "views": {name: {"query": query.format(name)} for name in ("fast", "late")},
        "minibatch": {"max_rows": 10, "size": 1},
    }
    spark = cast("SparkSession", TasksHere())
    return EpochsByHand(spark, brokers, data, load_spec(spec), 1_000_000)


def write_seconds(directory: Path, seconds: list[int]) -> None:
    for number, second in enumerate(seconds):
        path = directory / f"{number}.csv"
        path.write_text(f"a,{second * 1_000}\n" * 10)
        os.utime(path, (number, number))


def tick(job: EpochsByHand) -> set[str]:
    """Let time pass, and return what is paused."""
    assert job.now_ms is not None
    job.now_ms += 20
    job.pipeline.tick()
    return {each.topic for each in job.pipeline.clock.paused}


def test_a_directory_that_is_ahead_waits_for_the_other_one(tmp_path: Path, directory: Path) -> None:
    slow = tmp_path / "slow"
    slow.mkdir()
    write_seconds(directory, [0, 50, 500])
    write_seconds(slow, [0, 455])
    job = aligned_job(tmp_path / "data", directory, {"files": {"path": str(slow)}}, NO_BROKER)
    reading = FileReading(job.pipeline, job.logs)
    trace = []
    for _ in range(8):
        reading.work()
        paused = {Path(path).name for path in tick(job)}
        read = job.pipeline.newest.offsets
        trace.append((read[str(directory)]["0"], read[str(slow)]["0"], paused))
    assert trace[:5] == [
        (6, 4, set()),
        (12, 8, {"in"}),
        (12, 18, {"slow"}),
        (22, 18, {"in"}),
        (22, 20, {"in"}),
    ]
    assert trace[-1] == trace[4], "nothing more of the slow one will come"


@pytest.mark.broker
def test_a_directory_that_is_ahead_waits_for_a_topic(
    directory: Path, broker: Broker, topic: str, tmp_path: Path
) -> None:
    write_seconds(directory, [0, 50, 500])
    create_topic(broker.address, topic, 1)
    produce(broker.address, topic, [(0, b"a,5000")])
    job = aligned_job(tmp_path / "data", directory, {"topic": topic}, broker.address)
    path, reading = str(directory), FileReading(job.pipeline, job.logs)
    job.epoch({topic: job.ends()[topic]})
    read = []
    for _ in range(4):
        reading.work()
        read.append((job.pipeline.newest.offsets[path]["0"], tick(job)))
    assert read == [(10, set()), (20, {path}), (20, {path}), (20, {path})]
    produce(broker.address, topic, [(0, b"a,480000")])
    job.epoch({topic: job.ends()[topic]})
    assert tick(job) == {topic}, "now the files are behind"
    reading.work()
    assert tick(job) == set()
    assert job.pipeline.newest.offsets[path] == {"0": 30}


@pytest.mark.spark
@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_killed_job_has_each_line_of_a_directory_once(format: str, directory: Path) -> None:
    job = order_job(directory, format)
    write_orders(directory, 1, 6, format)
    job.must_die_at("before_commit" if format == "csv" else "after_commit", "kill@3")
    write_orders(directory, 2, 4, format)
    job.must_run()
    assert results(job) == read_by_duckdb(directory, format)
    epochs = job.epochs()
    assert len(epochs) > 5, "max_rows bounds an epoch"
    assert epochs[-1].offsets == {str(directory): {"0": sum(each.counts.read for each in epochs)}}
    assert job.ask("audit", "orders", "--brokers", NO_BROKER)[0]["verdict"] == "equal"


@pytest.mark.spark
def test_canal_messages_in_files_are_folded_like_those_of_a_topic(directory: Path) -> None:
    made, query = history(7, messages=600), 1
    values = [message.value or b"" for message in made.messages]
    for number in range(0, len(values), 97):
        (directory / f"{number:04}.json").write_bytes(b"\n".join(values[number : number + 97]))
    source = {"files": {"path": str(directory)}, "database": DATABASE, "table": TABLE}
    job = order_job(directory, "canal-json", name="items", columns=dict(COLUMNS))
    job.spec |= {"source": source, "query": QUERIES[query][0], "max_bad_fraction": 1.0}
    job.must_run()
    must_end_in_the_truth(job, made, query, job.ask("changes", "items"))
    kept = {row["offset"]: row["reason"] for row in job.part("quarantine")}
    refused = [at for at, each in enumerate(made.messages) if each.outcome == "rejected"]
    assert sorted(kept) == refused
    for at in refused:
        assert kept[at].startswith(f"{at // 97 * 97:04}.json line {at % 97 + 1}: ")


@pytest.mark.spark
def test_a_running_job_reads_new_files_and_stops_at_one_that_has_changed(directory: Path) -> None:
    write_orders(directory, 1, 1, "json")
    job = order_job(directory, "json")
    running = job.start(caught_up=False)
    try:
        eventually(lambda: EpochTable.exists(job.table) and len(job.epochs()) > 1, RUN_SECONDS_MAX)
        write_orders(directory, 2, 2, "json")
        eventually(lambda: results(job) == read_by_duckdb(directory, "json"), RUN_SECONDS_MAX)
        changed = next(iter(directory.glob("2-1.json")))
        changed.write_text(changed.read_text() + json.dumps(order(random.Random(3))))
        output, _ = running.communicate(timeout=RUN_SECONDS_MAX)
    finally:
        running.kill()
    assert running.returncode == 1
    assert f"{changed} has changed since it was first seen" in output
