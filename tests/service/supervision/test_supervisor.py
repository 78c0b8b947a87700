"""Supervision: processes of their own, found again, never two, started again after a failure.

The jobs here wait for a broker that is not there: real processes that hold their writer's lock.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from service.supervision import job_process
from service.supervision.register import Actual, Desired, JobRecord
from service.supervision.supervisor import is_retry_due
from tests.support.service.served import SPEC, Served, eventually

pytestmark = pytest.mark.slow


def started(served: Served, name: str) -> dict[str, Any]:
    with served.client() as client:
        assert client.put(f"/v1/jobs/{name}", content=SPEC).status_code == 201
        output = client.post(f"/v1/jobs/{name}/start")
        assert (output.status_code, output.json()["desired"]) == (202, "RUNNING")
    return output.json()  # type: ignore[no-any-return]


def holder(data: Path, name: str) -> int | None:
    return job_process.find_writer(data / "jobs" / name / "lock")


def test_a_killed_service_leaves_its_jobs_and_the_next_one_finds_them(data: Path) -> None:
    first = Served.start(data)
    started(first, "items")
    pid = eventually(lambda: holder(data, "items"))
    assert os.getsid(pid) == pid
    first.kill()
    assert job_process.is_alive(pid, None)
    with Served.start(data) as second:
        eventually(lambda: second.job("items")["actual"] in ("STARTING", "RUNNING"))
        assert holder(data, "items") == pid
        with second.client() as client:
            assert client.delete("/v1/jobs/items?data=drop").json()["code"] == "job-not-stopped"
            stopping = client.post("/v1/jobs/items/stop").json()
            assert (stopping["desired"], stopping["actual"]) == ("STOPPED", "STOPPING")
            os.kill(pid, signal.SIGKILL)  # it waits for its broker, and would a while longer
            eventually(lambda: second.job("items")["actual"] == "STOPPED")
            # A child of the killed process may hold the writer's lock for a moment longer.
            eventually(lambda: client.delete("/v1/jobs/items?data=drop").status_code == 204)
        assert not (data / "jobs" / "items").exists()


def test_a_job_that_ended_with_its_service_starts_again_without_a_failure(data: Path) -> None:
    """As in a container that is stopped: its processes end with it."""
    first = Served.start(data)
    started(first, "items")
    pid = eventually(lambda: holder(data, "items"))
    first.kill()
    os.killpg(pid, signal.SIGKILL)
    eventually(lambda: holder(data, "items") is None)  # else the second service sees it running
    with Served.start(data) as second:
        eventually(lambda: holder(data, "items") not in (None, pid))
        job = second.job("items")
        assert (job["actual"] in ("STARTING", "RUNNING"), job["failures"]) == (True, 0)
        with second.client() as client:
            lines = client.get("/v1/jobs/items/logs").json()["lines"]
        assert sum("revision 1 starts" in line["message"] for line in lines) == 2


@pytest.mark.parametrize(
    ("seconds", "due"), [(None, False), (-1, True), (0, True), (5, False), (8 * 3_600, True)]
)
def test_a_failed_job_does_not_wait_for_a_clock_that_was_set_back(
    seconds: int | None, due: bool
) -> None:
    now = 1_000_000
    retry_at = None if seconds is None else now + 1_000 * seconds
    record = JobRecord(
        name="items",
        revision=1,
        spec="",
        desired=Desired.RUNNING,
        actual=Actual.FAILED,
        since=0,
        retry_at=retry_at,
    )
    assert is_retry_due(record, now) is due


def test_a_job_that_dies_starts_again_after_a_pause_and_says_why(data: Path) -> None:
    with Served.start(data) as served:
        started(served, "items")
        pid = eventually(lambda: holder(data, "items"))
        os.killpg(pid, signal.SIGKILL)
        failed = eventually(lambda: (job := served.job("items"))["actual"] == "FAILED" and job)
        assert "signal 9" in failed["reason"]
        assert failed["failures"] == 1
        assert failed["retry_at"] is not None
        again = eventually(lambda: (now := holder(data, "items")) != pid and now)
        with served.client() as client:
            client.post("/v1/jobs/items/pause")
            os.killpg(again, signal.SIGKILL)
            eventually(lambda: served.job("items")["actual"] == "PAUSED")
            lines = client.get("/v1/jobs/items/logs").json()["lines"]
        assert sum("revision 1 starts" in line["message"] for line in lines) == 2
        assert holder(data, "items") is None


def test_a_changed_spec_waits_for_the_next_start_and_no_secret_shows(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "canary-c4f1"
    monkeypatch.setenv("CANARY", canary)
    file = data / "connections.yaml"
    file.write_text(
        "main: {bootstrap: '127.0.0.1:9', security: SASL_PLAINTEXT,"
        " sasl: {mechanism: PLAIN, username: u, password_env: CANARY}}\n"
    )
    served = Served.start(data, "--connections", str(file), "--verbose")
    spec = SPEC.replace("{topic: t}", "{topic: t, connection: main}")
    output = ""
    try:
        with served.client() as client:
            assert client.put("/v1/jobs/items", content=spec).status_code == 201
            client.post("/v1/jobs/items/start")
            pid = eventually(lambda: holder(data, "items"))
            changed = client.put("/v1/jobs/items", content=spec + "retention: 1d\n").json()
            assert (changed["revision"], changed["restart_needed"]) == (2, True)
            for path in ("/v1/jobs/items", "/v1/jobs/items/logs", "/openapi.json", "/metrics"):
                output += client.get(path).text
            output += Path(f"/proc/{pid}/cmdline").read_text()
    finally:
        served.stop()
    for left in (data / "service").rglob("*"):
        if left.is_file():
            assert left.stat().st_mode & 0o077 == 0, left
            output += left.read_bytes().decode("latin-1")
    assert canary not in output
    assert "connections.yaml" in output


def test_a_spec_that_a_job_refuses_fails_for_good_and_says_where(data: Path) -> None:
    with Served.start(data) as served:
        with served.client() as client:
            assert client.put("/v1/jobs/items", content=SPEC).status_code == 201
            with (data / "service" / "jobs" / "items" / "spec.yaml").open("a") as kept:
                kept.write("watermarc: {}\n")  # as a retally of another version may have it
            client.post("/v1/jobs/items/start")
            failed = eventually(lambda: (job := served.job("items"))["actual"] == "FAILED" and job)
        assert failed["retry_at"] is None
        assert failed["reason"].startswith("spec:")
        assert "watermarc" in failed["reason"]
        assert failed["failure"].pop("advice").endswith("PUT it again, and start the job.")
        assert failed["failure"] == {"code": "spec-refused", "retryable": False}
        assert str(data) not in failed["reason"]
