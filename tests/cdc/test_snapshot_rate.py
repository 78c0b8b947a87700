"""The rows of a large table over JDBC are exact, and their rate is measured beside Spark's.

    MariaDB ─┬─► Spark, by the same ranges of the key, which drops the rows
             └─► a job: images by key ─► groups ─► one commit a part

Both have two cores, which they share with the database.
"""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.spark.job_session import open_session
from schemas.limits import SNAPSHOT_FETCH_ROWS
from tests.cdc.artifacts import mariadb_driver
from tests.cdc.database import READER, SCHEMA, Database
from tests.support.jobs.running_job import RunningJob

pytestmark = [pytest.mark.cdc, pytest.mark.spark, pytest.mark.timeout(1_800)]
ROWS = int(os.environ.get("CDC_SNAPSHOT_ROWS", "2000000"))
ROWS_AT_ONCE = 500_000  # of a statement that makes them
GROUPS = 180_000
RANGES = 8
MASTER = "local[2]"
QUERY = "SELECT name, COUNT(*) AS n, SUM(cnt) AS total, MAX(cnt) AS top FROM large GROUP BY name"


@pytest.mark.parametrize("kind", ["mariadb"], indirect=True)
def test_a_large_table_is_exact_and_its_rate_is_measured(
    database: Database, brokers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--jars {mariadb_driver()} pyspark-shell")
    _fill(database)
    alone = ROWS / _read_alone(database, tmp_path)
    job = _make_job(database, brokers, tmp_path)
    job.must_run_by_itself()
    first, *others = [row for row in job.epochs() if row.counts.snapshot_part is not None]
    seconds = (others[-1].committed_at - first.committed_at) / 1e6
    rate = sum(row.counts.rows for row in others) / seconds
    share = f"{rate / alone:.2f} of Spark alone, {alone:,.0f} rows/s"
    print(f"snapshot: {ROWS:,} rows, {rate:,.0f} rows/s, {share}")
    expected = {row["name"]: row for row in database.rows(QUERY)}
    found = job.ask("results", "large")
    assert len(found) == len(expected)
    for row in found:
        of_database = expected[row["name"]]
        assert {name: str(value) for name, value in row.items()} == of_database


def _fill(database: Database) -> None:
    database.run(
        "CREATE TABLE large (id BIGINT PRIMARY KEY, name VARCHAR(40) NOT NULL, cnt INT NOT NULL);"
    )
    for first in range(1, ROWS + 1, ROWS_AT_ONCE):
        last = min(first + ROWS_AT_ONCE - 1, ROWS)
        database.run(
            f"INSERT INTO large SELECT seq, CONCAT('product-', (seq * 7919) % {GROUPS}), "
            f"CAST((seq * 31) % 2000 AS INT) - 1000 FROM seq_{first}_to_{last};"
        )


def _read_alone(database: Database, home: Path) -> float:
    """Return the seconds in which Spark reads the rows, once it is warm."""
    edges = [1 + ROWS * part // RANGES for part in range(RANGES + 1)]
    ranges = [f"id >= {low} AND id < {high}" for low, high in pairwise(edges)]
    properties = {
        "driver": "org.mariadb.jdbc.Driver",
        "user": READER,
        "password": READER,
        "fetchsize": str(SNAPSHOT_FETCH_ROWS),
    }
    seconds = []
    with open_session("alone", home / "alone", MASTER, 1, delta=False) as spark:
        frame = spark.read.jdbc(
            _url(database, "mysql"), "large", predicates=ranges, properties=properties
        )
        for _ in range(2):
            began = time.monotonic()
            frame.write.format("noop").mode("overwrite").save()
            seconds.append(time.monotonic() - began)
    return min(seconds)


def _url(database: Database, kind: str) -> str:
    url = f"jdbc:{kind}://127.0.0.1:{database.port}/{SCHEMA}"
    return url + ("?permitMysqlScheme=true&useCursorFetch=true" if kind == "mysql" else "")


def _make_job(database: Database, brokers: str, home: Path) -> RunningJob:
    topic = "large-changes"
    with KafkaAdmin({"bootstrap_servers": [brokers]}) as admin:
        admin.ensure_topic(topic, 1, {})
    spec: dict[str, Any] = {
        "name": "large",
        "source": {
            "topic": topic,
            "snapshot": {"jdbc": {"connection": "shop", "table": "large", "key": "id"}},
        },
        "columns": {"id": "BIGINT", "name": "STRING", "cnt": "INT"},
        "primary_key": ["id"],
        "dedupe": "pk",
        "query": QUERY,
    }
    named = home / "connections.yaml"
    login = f"login: {{username: {READER}, password: {READER}}}"
    named.write_text(f'shop: {{jdbc: "{_url(database, "mariadb")}", {login}}}\n')
    named.chmod(0o600)
    return RunningJob(spec, home, brokers, ("--connections", str(named), "--master", MASTER))
