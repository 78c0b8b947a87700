"""Jobs of one name in two data directories, on one broker: neither harms the other."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from jobs.edge.process.broker import Broker
from schemas.directory.documents import read_document
from schemas.directory.failure import Failure
from tests.support.jobs.running_job import RunningJob, consumed, create_topic, produce

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.faults]

WAIT_SECONDS = 90


def spec_of(topic: str, sink: str) -> dict[str, Any]:
    return {
        "name": "orders",
        "source": {"topic": topic},
        "columns": {"k": "STRING", "v": "INT"},
        "query": "SELECT k, SUM(v) AS s FROM t GROUP BY k",
        "minibatch": {"size": 1, "latency": "100ms"},
        "sink": {"topic": sink, "partitions": 1},
        "state": {"buckets": 2},
    }


def inserted(k: str, v: int) -> bytes:
    return json.dumps({"type": "INSERT", "data": [{"k": k, "v": str(v)}]}).encode()


def test_a_job_goes_on_whatever_another_of_its_name_does(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.address, topic, 1)
    sink = f"{topic}-changes"
    ours = RunningJob(spec_of(topic, sink), tmp_path / "ours", broker.address)
    running = ours.start(caught_up=False)
    try:
        published(ours, running, topic, sink, 1)

        never_runs = RunningJob(ours.spec, tmp_path / "without-java", broker.address)
        with monkeypatch.context() as without:
            without.setenv("PATH", str(tmp_path))
            without.setenv("RETALLY_JARS", str(tmp_path / ".jars"))
            without.delenv("JAVA_HOME", raising=False)
            code, said = never_runs.run()
        assert code == 1 and "no java in the PATH" in said, said
        published(ours, running, topic, sink, 2)

        same_sink = RunningJob(ours.spec, tmp_path / "same-sink", broker.address)
        code, said = same_sink.run()
        assert code == 1, said
        assert f"topic '{sink}' has the changelog of job 'orders', which has another table" in said
        failure = read_document(same_sink.table.parent / "failure.json", Failure)
        assert failure is not None
        assert (failure.code, failure.retryable) == ("publisher-sink-taken", False)
        published(ours, running, topic, sink, 3)

        theirs = RunningJob(spec_of(topic, f"{sink}-2"), tmp_path / "theirs", broker.address)
        theirs.must_run_by_itself()
        assert [each["value"]["row"] for each in consumed(broker.address, f"{sink}-2")] == [
            {"k": "a", "s": 3}
        ]
        published(ours, running, topic, sink, 4)
    finally:
        running.send_signal(signal.SIGTERM)
        said, _ = running.communicate(timeout=WAIT_SECONDS)
    assert running.returncode == 0, said


def published(
    job: RunningJob, running: subprocess.Popen[str], topic: str, sink: str, total: int
) -> None:
    """One row more, and its result in the topic."""
    produce(job.brokers, topic, [(0, inserted("a", 1))])
    give_up = time.monotonic() + WAIT_SECONDS
    while True:
        assert running.poll() is None, running.communicate()[0]
        assert time.monotonic() < give_up, f"{total} never came"
        found = consumed(job.brokers, sink)
        if found and found[-1]["value"]["row"] == {"k": "a", "s": total}:
            return
        time.sleep(0.1)
