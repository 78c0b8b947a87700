"""docs/recovery.md: a restored table goes on from its offsets, and not in a topic ahead of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from jobs.edge.process.broker import Broker
from schemas.directory.documents import read_document
from schemas.directory.failure import Failure
from tests.support.jobs.canal_messages import insert, row
from tests.support.jobs.running_job import RunningJob, consumed, create_topic, produce

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]


@pytest.mark.timeout(900)
def test_a_restored_job_wants_a_new_sink_topic_and_reads_again_what_it_lacks(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic, 2)
    spec: dict[str, Any] = {
        "name": "items",
        "source": {"topic": topic},
        "columns": {"k": "STRING", "v": "INT"},
        "query": "SELECT k, COUNT(*) AS n, MAX(v) AS top FROM t GROUP BY k",
        "sink": {"topic": f"{topic}-changes", "partitions": 2},
        "state": {"buckets": 4},
    }
    job = RunningJob(spec, tmp_path, broker.address)
    home = job.table.parent

    fill(broker, topic, "a", "b")
    job.must_run()
    shutil.copytree(home, tmp_path / "backup")
    fill(broker, topic, "b", "c")
    job.must_run()
    before = job.ask("results", "items")
    assert folded(broker, f"{topic}-changes") == by_group(before)

    shutil.rmtree(home)
    shutil.copytree(tmp_path / "backup", home)
    code, said = job.run()
    assert code == 1, said
    failure = read_document(home / "failure.json", Failure)
    assert failure is not None
    assert (failure.code, failure.retryable) == ("sink-ahead", False)

    spec["sink"]["topic"] = f"{topic}-again"
    job.must_run()
    assert job.ask("results", "items") == before
    assert folded(broker, f"{topic}-again") == by_group(before)


def fill(broker: Broker, topic: str, *groups: str) -> None:
    messages = [(n % 2, insert(row(group, n))) for group in groups for n in range(5)]
    produce(broker.address, topic, messages)


def by_group(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["k"]: each for each in rows}


def folded(broker: Broker, topic: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for record in consumed(broker.address, topic):
        change = record["value"]
        if change["op"] in ("+I", "+U"):
            found[change["row"]["k"]] = change["row"]
        elif change["op"] == "-D":
            del found[change["row"]["k"]]
    return found
