"""Views with mirrors: each plain table has the results of its view, whatever has happened."""

from __future__ import annotations

import json
import signal
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from jobs.edge.process.broker import Broker
from jobs.running.mirror import JOB_GROUP
from schemas.directory.paths import JobDirectory
from tests.support.histories.products import history
from tests.support.jobs.running_job import RunningJob, produce
from tests.support.jobs.shop_views import make_shop_views
from tests.support.service.served import eventually

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.costly("a mirror of each view is refreshed by Spark"),
]

MIRRORED = ("view-0", "view-2")


def test_each_mirror_has_the_results_of_its_view(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    job = make_shop_views(broker.address, topic, tmp_path)
    for view in MIRRORED:
        job.spec["views"][view]["mirror"] = "1h"  # and at the end of each run
    messages = [(each.partition, each.value) for each in history(25, 160).messages]
    produce(broker.address, topic, messages[:80])
    job.must_run()
    first = {view: must_mirror(job, view) for view in MIRRORED}
    produce(broker.address, topic, messages[80:])
    job.must_run()
    assert all(must_mirror(job, view) > first[view] for view in MIRRORED)
    job.ask("rewind", "items", "--to", str(first["view-0"]), "--brokers", broker.address)
    job.must_run()
    assert must_mirror(job, "view-0") == must_mirror(job, "view-2")
    assert not mirror_of(job, "view-1").exists()

    # A view is dropped; the next start does what a killed command has left.
    del job.spec["views"]["view-2"]
    job.evolve(failpoints="after_commit=kill", code=-signal.SIGKILL)
    assert mirror_of(job, "view-2").exists()
    job.must_run()
    assert not mirror_of(job, "view-2").exists()
    must_mirror(job, "view-0")


def test_a_stopped_job_leaves_its_mirrors_at_its_last_epoch(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(keep_events(tmp_path)))
    job = make_shop_views(broker.address, topic, tmp_path)
    for view in job.spec["views"]:
        job.spec["views"][view]["mirror"] = "100ms" if view == "view-0" else "off"
    messages = [(each.partition, each.value) for each in history(25, 160).messages]
    produce(broker.address, topic, messages[:80])
    process = job.start(caught_up=False)
    try:
        # After a refresh the mirror rests for 19 times as long.
        eventually(lambda: DeltaTable.is_deltatable(str(mirror_of(job, "view-0"))), 240)
        epoch = job.epochs()[-1].epoch
        produce(broker.address, topic, messages[80:])
        eventually(lambda: job.epochs()[-1].epoch > epoch, 120)
        process.terminate()
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.communicate()
    assert must_mirror(job, "view-0") == job.epochs()[-1].epoch
    assert not mirror_of(job, "view-1").exists()
    # Each stage is one task, so that an epoch finds a free core.
    assert set(tasks_of_refreshes(tmp_path)) == {1}


def keep_events(directory: Path) -> Path:
    """Return a configuration of Spark that keeps what its scheduler did."""
    events = {"enabled": "true", "dir": directory.as_uri(), "rolling.enabled": "false"}
    events["compress"] = "false"
    lines = [f"spark.eventLog.{name} {value}\n" for name, value in events.items()]
    (directory / "spark-defaults.conf").write_text("".join(lines))
    return directory


def tasks_of_refreshes(directory: Path) -> list[int]:
    logs = directory.glob("local-*")
    return [
        event["Stage Info"]["Number of Tasks"]
        for event in map(json.loads, chain.from_iterable(log.open() for log in logs))
        if event["Event"] == "SparkListenerStageSubmitted"
        and event.get("Properties", {}).get("spark.jobGroup.id") == JOB_GROUP
    ]


def mirror_of(job: RunningJob, view: str) -> Path:
    return JobDirectory(job.data, "items", view).results


def must_mirror(job: RunningJob, view: str) -> int:
    """Compare the mirror with the results of the view; return the epoch in its newest commit."""
    table = DeltaTable(str(mirror_of(job, view)))
    rows: list[dict[str, Any]] = table.to_pyarrow_table().to_pylist()
    results = job.ask("results", "items", "--view", view)
    assert results and sorted(rows, key=repr) == sorted(results, key=repr), view
    epoch: int = json.loads(table.history(1)[0]["userMetadata"])["epoch"]
    return epoch
