"""Aggregate classes of operators in a running job: timers, kills, lost caches, audit, failures."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from jobs.edge.process.broker import Broker
from schemas.directory.documents import read_document
from schemas.directory.failure import Failure
from tests.support.jobs.operator_classes import ALLOWED, declare
from tests.support.jobs.running_job import RunningJob, create_topic, produce
from tests.support.jobs.timed_job import MINUTE, NOON, spec_of

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

CHECKOUT = Path(__file__).resolve().parents[4]


@pytest.fixture(autouse=True)
def _allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETALLY_AGGREGATES", ALLOWED)
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))


def with_classes(topic: str, query: str) -> dict[str, Any]:
    spec = spec_of(topic, {"time": {"column": "at"}})
    functions = {
        "GEO": declare("GeoMean", "DOUBLE"),
        "BURST": declare("Burst", "BIGINT", timers=True),
        "WRONG": declare("Wrong", "BIGINT"),
    }
    columns = {"name": "STRING", "cnt": "INT", "at": "BIGINT"}
    source = {"topic": topic, "format": "json"}
    return {**spec, "source": source, "columns": columns, "functions": functions, "query": query}


def event(name: str, cnt: int, at: int) -> tuple[int, bytes]:
    return 0, b'{"name":"%s","cnt":%d,"at":%d}' % (name.encode(), cnt, at)


def results(job: RunningJob) -> dict[str, Any]:
    rows = job.ask("results", job.spec["name"])
    return {row["name"]: (row["geo"], row["burst"]) for row in rows}


def test_timers_fire_once_through_a_kill_and_an_audit_agrees(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic, 1)
    query = f"SELECT name, GEO(cnt) AS geo, BURST(at, {MINUTE}) AS burst FROM t GROUP BY name"
    job = RunningJob(with_classes(topic, query), tmp_path, broker.address, warm=False)
    rows = [event("a", 2, NOON), event("a", 8, NOON + 5), event("b", 3, NOON + 9)]
    produce(broker.address, topic, rows)
    job.must_run_by_itself()
    assert results(job) == {"a": (pytest.approx(4), None), "b": (pytest.approx(3), None)}
    kept = [
        tuple(value.values())
        for row in job.part("multisets")
        for name, value in row.items()
        if name.startswith("value_") and value is not None
    ]
    assert (2,) in kept
    assert (NOON, MINUTE) in kept, "the arguments of rows, open to every engine"

    produce(broker.address, topic, [event("c", 1, NOON + 2 * MINUTE)])
    job.must_die_at("after_commit", "kill@1")  # the rows are in, the timers have not fired
    shutil.rmtree(job.data / "cache")
    job.must_run_by_itself()
    found = {"a": (pytest.approx(4), 2), "b": (pytest.approx(3), 1), "c": (1, None)}
    assert results(job) == found
    last = job.epochs()[-1]
    assert (last.kind, last.time.published_watermark) == ("time", NOON + 2 * MINUTE - 1)
    told = [row for row in job.part("changelog") if row["op"] == "+U"]
    assert sorted(row["name"] for row in told) == ["a", "b"], "once each"
    (report,) = job.ask("audit", "timed", "--brokers", broker.address)
    assert (report["verdict"], report["groups"]) == ("equal", 3)


def test_a_class_that_raises_ends_the_job_with_its_row_and_group(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic, 1)
    query = "SELECT name, WRONG(cnt) AS w FROM t GROUP BY name"
    job = RunningJob(with_classes(topic, query), tmp_path, broker.address, warm=False)
    produce(broker.address, topic, [event("a", 2, NOON), event("b", 0, NOON + 5)])
    code, output = job.run()
    assert code == 1, output
    failure = read_document(job.data / "jobs" / "timed" / "failure.json", Failure)
    assert failure is not None, output
    assert (failure.code, failure.retryable) == ("aggregate-failed", False)
    assert "Wrong: accumulate failed: ZeroDivisionError" in failure.reason
    assert failure.reason.endswith(
        "; the row: [0]; correct the class, then start the job (in the group ('b',))"
    )
    assert "Traceback" not in output
