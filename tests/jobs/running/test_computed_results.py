"""HAVING and expressions over aggregates in a job: table, audit, explain and mirror agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from jobs.edge.process.broker import Broker
from tests.support.jobs.running_job import RunningJob, create_topic, produce

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

QUERY = """
SELECT name, ROUND(SUM(cnt) * 1.0 / COUNT(*), 2) AS mean, MAX(cnt) - MIN(cnt) AS spread
FROM product GROUP BY name HAVING COUNT(*) > 1 AND MAX(cnt) < 100
"""


def spec_of(topic: str) -> dict[str, Any]:
    return {
        "name": "computed",
        "source": {"topic": topic},
        "columns": {"name": "STRING", "cnt": "INT"},
        "query": QUERY,
        "state": {"buckets": 2},
        "mirror": "1h",  # and at the end of each run
    }


def message(kind: str, name: str, cnt: int, old: int | None = None) -> bytes:
    before = "" if old is None else f'"old":[{{"cnt":"{old}"}}],'
    return f'{{"data":[{{"name":"{name}","cnt":"{cnt}"}}],{before}"type":"{kind}"}}'.encode()


def test_groups_come_and_go_with_having_and_everybody_says_the_same(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic, 1)
    job = RunningJob(spec_of(topic), tmp_path, broker.address)
    first = [("a", 1), ("a", 4), ("b", 7), ("c", 2), ("c", 3), ("d", 5), ("d", 500)]
    produce(broker.address, topic, [(0, message("INSERT", *row)) for row in first])
    job.must_run()
    shown = {"a": ("2.50", 3), "c": ("2.50", 1)}
    assert results(job) == shown
    then = [
        message("INSERT", "b", 9),
        message("DELETE", "c", 3),
        message("UPDATE", "d", 6, 500),
        message("UPDATE", "a", 8, 4),
    ]
    produce(broker.address, topic, [(0, each) for each in then])
    job.must_run()
    shown = {"a": ("4.50", 7), "b": ("8.00", 2), "d": ("5.50", 1)}
    assert results(job) == shown
    output = [(row["op"], row["name"]) for row in job.part("changelog") if row["epoch"] > 1]
    assert sorted(output) == [("+I", "b"), ("+I", "d"), ("+U", "a"), ("-D", "c"), ("-U", "a")]
    (report,) = job.ask("audit", "computed", "--brokers", broker.address)
    assert (report["verdict"], report["groups"]) == ("equal", 3)
    (hidden,) = job.ask("explain", "computed", "c")
    assert (hidden["hidden"], hidden["row"], hidden["row_count"]) == (True, None, 1)
    (seen,) = job.ask("explain", "computed", "b")
    assert (seen["hidden"], seen["row"]["spread"]) == (False, 2)
    mirrored = DeltaTable(str(job.table.parent / "results")).to_pyarrow_table()
    rows = duckdb.from_arrow(mirrored).order("name").project("name, spread").fetchall()
    assert rows == [("a", 7), ("b", 2), ("d", 1)]


def test_a_rollup_is_what_the_audit_recomputes(broker: Broker, topic: str, tmp_path: Path) -> None:
    create_topic(broker.address, topic, 2)
    spec = spec_of(topic)
    spec["query"] = "SELECT name, COUNT(*) AS n, MAX(cnt) AS top FROM product GROUP BY ROLLUP(name)"
    del spec["mirror"]
    job = RunningJob(spec, tmp_path, broker.address)
    rows = [("a", 1), ("a", 4), ("b", 7)]
    produce(broker.address, topic, [(0, message("INSERT", *row)) for row in rows])
    produce(broker.address, topic, [(0, message("DELETE", "b", 7))])
    job.must_run()
    found = [(row["name"], row["n"], row["top"]) for row in job.ask("results", "computed")]
    assert sorted(found, key=repr) == [("a", 2, 4), (None, 2, 4)]
    (report,) = job.ask("audit", "computed", "--brokers", broker.address)
    assert (report["verdict"], report["groups"]) == ("equal", 2)


def test_a_row_without_input_is_there_before_the_first_message_and_after_the_last(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic, 2)
    of_name = "SELECT name, COUNT(*) AS n, MAX(cnt) AS top FROM product GROUP BY "
    views = {
        "arrays": "SELECT COUNT(*) AS n, SUM(cnt) AS total, MIN(cnt) AS low FROM product",
        "groups": "SELECT COUNT(DISTINCT name) AS names, MEDIAN(cnt) AS mid FROM product",
        "sets": of_name + "GROUPING SETS (name, (), ())",
        "never": "SELECT COUNT(*) AS rows FROM product WHERE cnt > 1000",
    }
    spec = spec_of(topic) | {
        "views": {name: {"query": query, "empty": "row"} for name, query in views.items()}
    }
    del spec["query"], spec["state"], spec["mirror"]
    job = RunningJob(spec, tmp_path, broker.address)

    def read() -> list[list[tuple[Any, ...]]]:
        asked = (job.ask("results", "computed", "--view", name) for name in views)
        return [[tuple(row.values()) for row in rows] for rows in asked]

    job.must_run()
    empty = [[(0, None, None)], [(0, None)], [(None, 0, None)] * 2, [(0,)]]
    assert read() == empty
    rows = [("a", 1), ("a", 4), ("b", 7)]
    produce(broker.address, topic, [(0, message("INSERT", *row)) for row in rows])
    job.must_run()
    assert read()[0] == [(3, 12, 1)]
    produce(broker.address, topic, [(0, message("DELETE", *row)) for row in rows])
    job.must_run()
    assert read() == empty
    for name in views:
        changes = job.ask("changes", "computed", "--view", name)
        assert [each["op"] for each in changes].count("-D") == 2 * (name == "sets")
        (report,) = job.ask("audit", "computed", "--view", name, "--brokers", broker.address)
        assert (report["verdict"], report["groups"]) == ("equal", 1 + (name == "sets"))
    (shown,) = job.ask("explain", "computed", "--view", "groups")
    assert (shown["row"], shown["row_count"]) == ({"names": 0, "mid": None}, 0)


def results(job: RunningJob) -> dict[str, tuple[str, int]]:
    rows = job.ask("results", "computed")
    return {row["name"]: (row["mean"], row["spread"]) for row in rows}
