"""Joins as users run them: killed anywhere, each view and its topic are what DuckDB says.

random changes ──► retally run, killed ──► run again ──► table, and topic folded == DuckDB
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from jobs.edge.process.broker import Broker
from jobs.edge.table.reading import TableReader
from jobs.reading.files import live_files, open_table
from schemas.directory.paths import JobDirectory
from tests.support.jobs.joined_tables import Tables
from tests.support.jobs.published_records import fold_topic
from tests.support.jobs.running_job import RunningJob
from tests.support.sampling import quick

pytestmark = [
    pytest.mark.spark,
    pytest.mark.costly("three joins through Spark, killed and started again"),
]

QUERIES = [
    "SELECT w, COUNT(*) AS n, SUM(v) AS s FROM a JOIN b ON a.k = b.k GROUP BY w",
    "SELECT k, COUNT(*) AS n, COUNT(w) AS c FROM a FULL JOIN b USING (k) GROUP BY k",
    "SELECT w, COUNT(*) AS n, SUM(x) AS s FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN c "
    "ON c.k = b.id GROUP BY w",
]
KILLS = [
    ("join_task", "kill@6"),
    ("before_commit", "kill@2"),
    ("after_commit", "kill@2"),
    ("hot_state_written", "kill@5"),
]


def make_job(tables: Tables, topic: str, home: Path, max_rows: int) -> RunningJob:
    """Return the job as a process, each view with a topic."""
    spec = {"name": "joined", **tables.document, "minibatch": {"size": 1, "max_rows": max_rows}}
    for name, view in spec["views"].items():
        view["sink"] = {"topic": f"{topic}-{name}", "partitions": 2}
    return RunningJob(spec, home, tables.brokers)


def must_be_exact(job: RunningJob, tables: Tables) -> None:
    truth = tables.truth()
    for name in truth:
        place = JobDirectory(job.data, "joined").at_view(name)
        rows = TableReader.open(place).results()
        assert Counter((*key, *row) for key, row in rows.items()) == truth[name], name
        published = fold_topic(tables.brokers, job.spec["views"][name]["sink"]["topic"])
        assert Counter(tuple(row.values()) for row in published) == truth[name], name


@pytest.mark.slow
@pytest.mark.parametrize(("failpoint", "action"), quick(KILLS, KILLS[1:2], pytest.mark.faults))
def test_after_a_kill_every_view_and_its_topic_is_exact(
    failpoint: str, action: str, broker: Broker, topic: str, tmp_path: Path
) -> None:
    tables = Tables.make(broker.address, topic, QUERIES, seed=4)
    job = make_job(tables, topic, tmp_path, max_rows=40)
    tables.send(tables.change(150))
    code, output = job.run(f"{failpoint}={action}")
    assert job.fired(failpoint), output
    assert code != 0 or failpoint in ("join_task", "hot_state_written"), output
    job.must_run_by_itself()
    must_be_exact(job, tables)
    tables.send(tables.change(60))
    job.must_run()
    must_be_exact(job, tables)


def test_a_large_epoch_is_joined_in_stages_of_several_tasks(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    tables = Tables.make(broker.address, topic, QUERIES, seed=5)
    job = make_job(tables, topic, tmp_path, max_rows=500_000)
    tables.send(tables.change(30_000, keys=range(20_000)))
    job.must_run()
    must_be_exact(job, tables)
    root = JobDirectory(job.data, "joined").table
    sides = (file for file in live_files(open_table(root)) if file.part.startswith("join_"))
    assert max(Counter(file.part for file in sides).values()) > 1, "one task has joined all"
