"""A job reads a table over JDBC while the application writes, then canal's topic from its end.

database ─┬─ rows, in parts, by the key ─────────────► job, killed between two parts ─┐
          └─ binlog ──► canal ──► 4 partitions ──────► from the ends at its start ────┴► = database
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.cdc.artifacts import mariadb_driver
from tests.cdc.canal import Canal
from tests.cdc.database import READER, SCHEMA
from tests.cdc.exactness import CheckedJob, load_job
from tests.cdc.workload import Workload, table_definition
from tests.support.faults.tally import FaultTally

pytestmark = [pytest.mark.cdc, pytest.mark.spark, pytest.mark.timeout(1_200)]
SEED = int(os.environ.get("CDC_SEED", "1"))
PARTS = 4


@pytest.mark.parametrize("moves", [False, True], ids=["plain", "moved"])
def test_a_snapshot_under_load_and_canal_behind_it_have_the_rows_of_the_database(
    canal: Canal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: bool
) -> None:
    table = f"loaded_{'moved' if moves else 'plain'}"
    canal.create_table(table_definition(table))
    workload = Workload(table, SEED, moves)
    canal.database.run(workload.transactions(300))
    canal.catch_up()  # these are before the ends that the job begins at
    job = _make_job(canal, table, tmp_path)
    driver = f"--jars {mariadb_driver()} pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", driver)
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            canal.database.run(workload.transactions(5))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        job.run.must_die_at("snapshot_part", "kill@2")
        job.run.must_run_by_itself()
    finally:
        ended.set()
        writer.join()
    canal.catch_up()
    job.run.must_run_by_itself()
    epochs = job.run.epochs()
    parts = [row.counts.snapshot_part for row in epochs]
    assert [each.part for each in parts if each is not None] == list(range(1, PARTS + 1))
    assert sum(row.counts.rows for row in epochs if row.counts.snapshot_part is None) > 0
    tally = FaultTally(f"{canal.database.kind} and canal: a snapshot under load, the job killed")
    tally.further |= {"wrong": 0, "seed": SEED}
    tally.inputs = canal.count(table)
    problems = job.compare(tally)
    doubtful = sum(row.counts.ambiguous_keys for row in epochs)
    assert not problems or doubtful, problems[:20]


def _make_job(canal: Canal, table: str, home: Path) -> CheckedJob:
    job = load_job(canal, table, home, primary_key=["id"], dedupe="pk")
    place = {"connection": "shop", "table": table, "key": "id", "parts": PARTS}
    job.run.spec["source"]["snapshot"] = {"jdbc": place}
    url = f"jdbc:{canal.database.kind}://127.0.0.1:{canal.database.port}/{SCHEMA}"
    login = f"login: {{username: {READER}, password: {READER}}}"
    named = home / "connections.yaml"
    driver = "driver: org.mariadb.jdbc.Driver"
    named.write_text(f'shop: {{jdbc: "{url}?permitMysqlScheme=true", {login}, {driver}}}\n')
    named.chmod(0o600)
    job.run.options = ("--connections", str(named))
    return job
