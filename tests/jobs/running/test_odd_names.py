"""Columns and results with names that mean something to Python, Spark, SQL and SQLite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from jobs.edge.process.broker import Broker
from tests.support.jobs.running_job import RunningJob, create_topic, produce

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

ROWS: list[dict[str, Any]] = [
    {"partitions": "1", "class": "a", "last": "x", "None": "1", "lambda": "7", "now": "2"},
    {"partitions": "2", "class": "a", "last": "x", "None": "2", "lambda": "9", "now": "3"},
    {"partitions": "3", "class": "b", "last": None, "None": "5", "lambda": None, "now": "4"},
]
TYPES = {
    "partitions": "BIGINT",
    "class": "STRING",
    "last": "STRING",
    "None": "INT",
    "lambda": "INT",
    "now": "INT",
}
# A plain query goes in parcels, one with an expression in rows that Spark projects.


@pytest.mark.parametrize(
    ("argument", "dedupe"),
    [("`None`", True), ("`None` + 0", False)],
    ids=["plain, dedupe", "expression"],
)
def test_a_job_with_such_names_is_right_in_table_mirror_audit_and_explain(
    broker: Broker, topic: str, tmp_path: Path, argument: str, dedupe: bool
) -> None:
    create_topic(broker.address, topic, 1)
    query = f"""
        SELECT class, last, SUM({argument}) AS def, MAX(lambda) AS rowid, MIN(now) AS now,
               COUNT(*) AS "None" FROM t GROUP BY class, last
    """
    spec: dict[str, Any] = {
        "name": "odd",
        "source": {"topic": topic},
        "columns": TYPES,
        "query": query,
        "state": {"buckets": 2},
        "mirror": "1h",  # and at the end of each run
    }
    if dedupe:
        spec |= {"primary_key": ["partitions"], "dedupe": "pk"}
    job = RunningJob(spec, tmp_path, broker.address)
    produce(broker.address, topic, [(0, message("INSERT", row)) for row in ROWS])
    job.must_run()
    produce(broker.address, topic, [(0, message("DELETE", ROWS[1]))])
    job.must_run()
    shown = [
        {"class": "a", "last": "x", "def": 1, "rowid": 7, "now": 2, "None": 1},
        {"class": "b", "last": None, "def": 5, "rowid": None, "now": 4, "None": 1},
    ]
    assert sorted(job.ask("results", "odd"), key=lambda row: row["class"]) == shown
    (report,) = job.ask("audit", "odd", "--brokers", broker.address)
    assert (report["verdict"], report["groups"]) == ("equal", 2)
    (output,) = job.ask("explain", "odd", json.dumps({"class": "a", "last": "x"}))
    assert output["row"]["def"] == 1
    mirrored = DeltaTable(str(job.table.parent / "results")).to_pyarrow_table().to_pylist()
    assert sorted(mirrored, key=lambda row: row["class"]) == shown


def message(kind: str, row: dict[str, Any]) -> bytes:
    return json.dumps({"data": [row], "type": kind}).encode()
