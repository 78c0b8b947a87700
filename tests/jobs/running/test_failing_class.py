"""An operator's generator class that raises in a task: the job ends once, with the cause first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.edge.process.broker import Broker
from schemas.directory.documents import read_document
from schemas.directory.failure import Failure
from tests.support.jobs.running_job import RunningJob, create_topic, produce

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

SOURCE = """
from jobs.core.generators import Generator

class Punctuated(Generator):
    def on_event(self, time, row, now):
        return row["v"] + 1
"""


@pytest.mark.parametrize(
    "sharing",
    [(), pytest.param(("--jobs-per-driver", "2"), marks=pytest.mark.faults)],
    ids=["alone", "shared"],
)
def test_the_reason_is_the_class_and_its_row(
    sharing: tuple[str, ...],
    broker: Broker,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "marks_of_shop.py").write_text(SOURCE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("RETALLY_GENERATORS", "marks_of_shop:Punctuated")
    spec = {
        "name": "failing",
        "source": {"topic": topic, "format": "json"},
        "columns": {"k": "STRING", "v": "INT"},
        "query": "SELECT k, SUM(v) FROM t GROUP BY k",
        "watermark": {"time": "kafka", "generator": {"class": "marks_of_shop:Punctuated"}},
    }
    job = RunningJob(spec, tmp_path, broker.address, sharing, warm=False)
    create_topic(broker.address, topic, 1)
    produce(
        broker.address, topic, [(0, json.dumps({"k": "a", "v": v}).encode()) for v in (1, None)]
    )
    code, output = job.run()
    assert code == 1, output
    failure = read_document(job.data / "jobs" / "failing" / "failure.json", Failure)
    assert failure is not None, output
    assert (failure.code, failure.retryable) == ("generator-failed", False)
    assert failure.reason.startswith(
        "the generator class marks_of_shop:Punctuated: on_event failed: TypeError: unsupported "
    )
    assert '(marks_of_shop.py, line 6); the row: {"k": "a", "v": null}' in failure.reason
    assert failure.reason.endswith(f"(read from {topic}/0 offset 1)")
    assert output.splitlines()[-1] == f"retally: {failure.reason}"
    assert "Traceback" not in output
