"""Answers of the service that a test cannot cause at will."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import Any, cast

import pytest

from jobs.cli.commands import jobs
from jobs.cli.commands.service import approve_pending
from jobs.cli.errors import CommandFailed
from jobs.cli.output import print_answer
from jobs.cli.service import Service, State
from retally import Change, Client, Columns, Job, Operation, Progress
from retally.documents import Document

BEYOND_DOUBLES = 2**53 + 1
SPEC = {
    "name": "items",
    "source": {"topic": "t"},
    "columns": {"name": "STRING", "v": "BIGINT"},
    "query": "SELECT name, SUM(v) AS total FROM t GROUP BY name",
}


def change(epoch: int, row: dict[str, Any]) -> Change:
    return Change(op="+I", epoch=epoch, seq=0, row=row)


class FakeClient:
    """A client with one job at epoch 3, whose query changes in epoch 2."""

    def job(self, name: str) -> Job:
        return Job(name=name, epoch=3, moved=None, spec=SPEC)

    def follow(self, name: str, since: int, key: Any) -> Iterator[object]:
        yield change(1, {"name": "a", "old": "7", "total": str(BEYOND_DOUBLES)})
        yield Progress(1, None, 1)
        yield Columns(2, {"name": "STRING", "tops": "ARRAY<BIGINT>"})
        yield change(2, {"name": "a", "tops": [1, str(BEYOND_DOUBLES)]})
        yield Progress(2, None, 1)
        yield Progress(3, None, 0)
        raise AssertionError("the command reads on after the newest epoch")

    def start(self, name: str) -> Job:
        failure = Document(code="died", retryable=True, advice="Give it more memory.")
        states = {"desired": "RUNNING", "actual": "FAILED", "groups": None, "lag": None}
        return Job({**self.job(name), **states, "reason": "killed", "failure": failure})

    def audit(self, name: str) -> Operation:
        return Operation(kind="audit", job=name, id="1")

    def wait_until_ended(self, operation: Operation, seconds: float) -> Operation:
        assert seconds == math.inf, "the operation goes on, however long it takes"
        return Operation({**operation, "state": "FAILED", "reason": "no \x1b broker"})


def service() -> Service:
    return Service(cast(Client, FakeClient()), "items")


def test_changes_are_typed_by_the_query_of_their_epoch() -> None:
    first, second = service().read_changes(None, None, follow=False)
    assert first["row"] == {"name": "a", "old": "7", "total": BEYOND_DOUBLES}
    assert second["row"] == {"name": "a", "tops": [1, BEYOND_DOUBLES]}


def test_csv_of_changes_names_the_epoch_at_which_their_columns_change() -> None:
    with pytest.raises(
        CommandFailed,
        match=r"at epoch 2 \(new row\.tops, no row\.old, no row\.total\): .* --since 1 continues",
    ):
        print_answer("csv", service().read_changes(None, None, follow=False))


def test_a_failed_operation_fails_the_command_with_its_reason() -> None:
    with pytest.raises(CommandFailed, match=r"the audit of items failed: no \\u001b broker"):
        service().audit()


def test_a_job_that_fails_at_its_start_fails_the_command_with_reason_and_advice() -> None:
    options = argparse.Namespace(action="start", name="items", wait=None, output="json", label=None)
    with pytest.raises(CommandFailed, match=r"^items failed: killed\. Give it more memory\.$"):
        jobs._run_action(cast(Client, FakeClient()), options)


class RunningClient(FakeClient):
    """A running job with a pending spec; once it is approved the job starts again."""

    def __init__(self, *states: dict[str, Any]) -> None:
        self._states = iter(states)

    def job(self, name: str) -> Job:
        ready = {"reason": None, "retry_at": None, "epoch": 3, "desired": "RUNNING"}
        return Job({**super().job(name), **ready, **next(self._states)})

    def approve(self, name: str, state: str | None) -> Operation:
        return Operation(kind="evolve", job=name, id="1")

    def wait_until_ended(self, operation: Operation, seconds: float) -> Operation:
        return Operation({**operation, "state": "DONE", "result": {"job": "items", "epoch": 4}})


def waiting(seconds: int | None = None, form: str = "table") -> argparse.Namespace:
    return argparse.Namespace(output=form, wait=seconds)


@pytest.mark.parametrize(
    ("state", "continues", "first"),
    [
        (None, True, "items stops, commits one epoch"),
        (None, False, "items continues with its old query while its topic is read again"),
        ("replay", True, "items continues with its old query while its topic is read again"),
    ],
)
def test_an_approval_says_what_it_does_with_a_running_job_and_waits_for_its_epoch(
    state: State | None,
    continues: bool,
    first: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "_POLL_SECONDS", 0.0)
    pending = {"actual": "RUNNING", "evolution": Document(continues=continues)}
    before = {"actual": "RUNNING", "epoch": 3}  # the service has not stopped it yet
    starting = {"actual": "STARTING", "epoch": 4, "reason": "starting Spark"}
    client = RunningClient(pending, before, starting, {"actual": "RUNNING", "epoch": 4})
    done = approve_pending(cast(Client, client), waiting(), "items", state)
    assert done == ({"job": "items", "epoch": 4}, True)
    said, phase = capsys.readouterr().err.splitlines()
    assert said.startswith(first)
    assert phase == "items: starting Spark"


def test_an_approved_job_that_fails_fails_the_command_with_its_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failure = Document(code="died", retryable=False, advice="Give it more memory.")
    failed = {"actual": "FAILED", "reason": "killed", "failure": failure}
    client = RunningClient({"actual": "RUNNING", "evolution": Document(continues=True)}, failed)
    with pytest.raises(CommandFailed, match=r"^items failed: killed\. Give it more memory\.$"):
        approve_pending(cast(Client, client), waiting(), "items", None)


@pytest.mark.parametrize(
    ("state", "seconds", "form", "reason"),
    [
        ({"actual": "STOPPED", "desired": "STOPPED"}, None, "table", "desired state is STOPPED"),
        ({"actual": "PAUSED", "desired": "PAUSED"}, None, "table", "desired state is PAUSED"),
        (
            {"actual": "FAILED", "retry_at": "soon"},
            0,
            "table",
            "FAILED after 0 s; see retally logs",
        ),
        ({"actual": "STARTING"}, 0, "json", "STARTING after 0 s; see retally logs items"),
    ],
)
def test_waiting_for_an_approved_job_ends_once_it_is_stopped_or_the_time_is_over(
    state: dict[str, Any], seconds: int | None, form: str, reason: str
) -> None:
    client = RunningClient({"actual": "RUNNING", "evolution": Document(continues=True)}, state)
    with pytest.raises(CommandFailed, match=reason):
        approve_pending(cast(Client, client), waiting(seconds, form), "items", None)


def test_json_of_an_approval_does_not_wait() -> None:
    client = RunningClient({"actual": "RUNNING", "evolution": None})
    done, _ = approve_pending(cast(Client, client), waiting(form="json"), "items", None)
    assert done["epoch"] == 4
