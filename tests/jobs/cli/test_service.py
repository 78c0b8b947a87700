"""Answers of the service that a test cannot cause at will."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import Any, cast

import pytest

from jobs.cli.commands import jobs
from jobs.cli.errors import CommandFailed
from jobs.cli.service import Service
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


def test_a_failed_operation_fails_the_command_with_its_reason() -> None:
    with pytest.raises(CommandFailed, match=r"the audit of items failed: no \\u001b broker"):
        service().audit()


def test_a_job_that_fails_at_its_start_fails_the_command_with_reason_and_advice() -> None:
    options = argparse.Namespace(action="start", name="items", wait=None, json=True)
    with pytest.raises(CommandFailed, match=r"^items failed: killed\. Give it more memory\.$"):
        jobs._run_action(cast(Client, FakeClient()), options)
