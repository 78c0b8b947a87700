"""Answers of the service that a test cannot cause at will."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.cli.errors import CommandFailed
from jobs.cli.service import Service
from schemas.table.explanation import Change
from service.client import Columns, Progress

BEYOND_DOUBLES = 2**53 + 1
SPEC = {
    "name": "items",
    "source": {"topic": "t"},
    "columns": {"name": "STRING", "v": "BIGINT"},
    "query": "SELECT name, SUM(v) AS total FROM t GROUP BY name",
}


class FakeClient:
    """A client with one job at epoch 3, whose query changes in epoch 2."""

    def job(self, name: str) -> Any:
        return SimpleNamespace(name=name, epoch=3, moved=None, spec=SPEC)

    def changes(self, name: str, since: int, key: Any) -> Iterator[object]:
        yield Change("+I", 1, 0, {"name": "a", "old": "7", "total": str(BEYOND_DOUBLES)})
        yield Progress(1, None, 1)
        yield Columns(2, {"name": "STRING", "tops": "ARRAY<BIGINT>"})
        yield Change("+I", 2, 0, {"name": "a", "tops": [1, str(BEYOND_DOUBLES)]})
        yield Progress(2, None, 1)
        yield Progress(3, None, 0)
        raise AssertionError("the command reads on after the newest epoch")

    def audit(self, name: str) -> Any:
        return SimpleNamespace(kind="audit", job=name, id="1")

    def wait_until_ended(self, operation: Any, seconds: float) -> Any:
        assert seconds == math.inf, "the operation goes on, however long it takes"
        return SimpleNamespace(**vars(operation), state="FAILED", reason="no \x1b broker")


def test_changes_are_typed_by_the_query_of_their_epoch() -> None:
    first, second = Service(FakeClient(), "items").read_changes(None, None, follow=False)
    assert first["row"] == {"name": "a", "old": "7", "total": BEYOND_DOUBLES}
    assert second["row"] == {"name": "a", "tops": [1, BEYOND_DOUBLES]}


def test_a_failed_operation_fails_the_command_with_its_reason() -> None:
    with pytest.raises(CommandFailed, match=r"the audit of items failed: no \\u001b broker"):
        Service(FakeClient(), "items").audit()
