"""Three executors, each with a hot state of its own: buckets stay at home, also after a death."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from jobs.core.values.change import Op
from jobs.edge.process.broker import Broker
from schemas.table.epoch import EpochRow
from tests.deploy.containers import SPARK_SECRET, Stack
from tests.support.command.shop import COLUMN_TYPES, Shop
from tests.support.histories.folded_changelog import fold_changelog
from tests.support.jobs.published_records import key_of, must_be_in_order, place
from tests.support.jobs.running_job import RUN_SECONDS_MAX, RunningJob, consumed
from tests.support.service.served import eventually

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.timeout(800),
    pytest.mark.skipif(sys.platform != "linux", reason="each container is an address of 127/8"),
]
QUERY = "SELECT cnt, COUNT(*) AS n, MAX(id) AS top, SUM(id) AS ids FROM product GROUP BY cnt"
EPOCH_ROWS, EPOCHS = 9_000, 14  # more than one fold task would take
SETTLED = 4  # epochs in which executors join
# An epoch in which an executor dies, and those in which the buckets of the dead catch up.
MOVING = 3


def test_buckets_stay_at_home_and_move_once_if_an_executor_dies(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(broker.address, f"homes-{uuid.uuid4().hex[:8]}", seed=3)
    shop.feed(EPOCH_ROWS * EPOCHS)
    cluster = {"WORKERS": "3", "WORKER_CORES": "1", "JOB_CORES": "3"}
    running = Stack(tmp_path, broker.address, settings=cluster)
    try:
        running.up(service=False)
        master = f"spark://{running.containers['spark-master'].address}:7077"
        monkeypatch.setenv("RETALLY_SPARK_SECRET", SPARK_SECRET)
        monkeypatch.setenv("SPARK_LOCAL_IP", running.containers["service"].address)
        monkeypatch.setenv("SPARK_EXECUTOR_MEMORY", "768m")
        job = make_job(broker, shop, tmp_path, master)
        process = job.start()
        eventually(lambda: newest(job) >= EPOCHS // 2, RUN_SECONDS_MAX)
        running.workers[1].kill()
        killed = newest(job)
        output, _ = process.communicate(timeout=RUN_SECONDS_MAX)
        assert process.returncode == 0, output
    finally:
        running.down()
        shop.close()
    must_be_exact(job, shop)

    epochs = [row for row in job.epochs() if row.kind == "data"]
    for row in epochs:
        print(row.epoch, _work(row))
    before = [row for row in epochs if SETTLED < row.epoch <= killed]
    after = [row for row in epochs if row.epoch > killed + MOVING]
    assert before and after
    for some, executors in ((before, 3), (after, 2)):
        placed, at_home, folded, caught_up = (
            sum(each) for each in zip(*map(_work, some), strict=True)
        )
        assert placed == executors * len(some)
        assert at_home >= 0.9 * placed
        assert caught_up <= 0.05 * folded
    moved = sum(
        row.counts.rows_caught_up for row in epochs if killed < row.epoch <= killed + MOVING
    )
    assert moved > 0, "nobody had the state of the buckets of the dead"


def _work(row: EpochRow) -> tuple[int, int, int, int]:
    counts = row.counts
    return counts.tasks_placed, counts.tasks_at_home, counts.rows_folded, counts.rows_caught_up


def make_job(broker: Broker, shop: Shop, home: Path, master: str) -> RunningJob:
    spec: dict[str, Any] = {
        "name": "homes",
        "source": {"topic": shop.topic},
        "columns": COLUMN_TYPES,
        "query": QUERY,
        "minibatch": {"size": 1, "max_rows": EPOCH_ROWS},
        "sink": {"topic": f"{shop.topic}-changes"},
    }
    return RunningJob(spec, home, broker.address, ("--master", master))


def newest(job: RunningJob) -> int:
    """Return the newest epoch; 0 before there is one."""
    exists = (job.table / "_delta_log").exists()
    return max((row.epoch for row in job.epochs()), default=0) if exists else 0


def must_be_exact(job: RunningJob, shop: Shop) -> None:
    """The results are DuckDB's, and the changelog leads to them."""
    records = consumed(job.brokers, job.spec["sink"]["topic"])
    must_be_in_order(records)
    published = sorted((record["value"] for record in records), key=place)
    assert len({place(change) for change in published}) == len(published), "a row came twice"
    folded = fold_changelog(
        {},
        [
            (Op(change["op"]), key_of(job.plan, change["row"]), change["row"])
            for change in published
        ],
    )
    results = {key_of(job.plan, row): row for row in job.ask("results", "homes")}
    assert folded == results
    columns = zip(*((number, cnt) for number, (_, cnt) in shop.rows.items()), strict=True)
    with duckdb.connect() as database:
        database.register("product", pa.table(list(columns), names=["id", "cnt"]))
        truth = database.execute(QUERY).fetchall()
    found = [tuple(row[name] for name in ("cnt", "n", "top", "ids")) for row in results.values()]
    assert sorted(map(repr, found)) == sorted(map(repr, truth))
