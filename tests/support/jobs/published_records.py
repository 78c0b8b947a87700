"""Check the published changelog of a test's job."""

from __future__ import annotations

import json
from typing import Any

from jobs.core.plan.tree import Plan
from jobs.core.values.change import Op
from tests.support.jobs.running_job import consumed


def place(change: dict[str, Any]) -> tuple[int, int]:
    return change["epoch"], change["seq"]


def must_be_in_order(records: list[Any]) -> None:
    """Check each key: one partition, growing epochs and seqs, retractions of the last row."""
    last: dict[str, Any] = {}
    home: dict[str, int] = {}
    before: tuple[int, int] = (-1, -1)
    partition = -1
    for record in records:
        change, key = record["value"], record["key"]
        assert home.setdefault(key, record["partition"]) == record["partition"]
        if record["partition"] != partition:
            partition, before = record["partition"], (-1, -1)
        assert place(change) > before
        before = place(change)
        op = Op(change["op"])
        if op is Op.INSERT:
            assert last.get(key) is None
        elif op is not Op.UPDATE_AFTER:
            assert last[key] == change["row"]
        last[key] = None if op.weight < 0 else change["row"]


def key_of(plan: Plan, row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(json.dumps(row[named.name]) for named in plan.group)


def fold_topic(brokers: str, topic: str) -> list[dict[str, Any]]:
    """Return the rows that a consumer of a changelog has; each change is in the topic once."""
    rows: dict[str, dict[str, Any]] = {}
    seen = set()
    for record in consumed(brokers, topic):
        change = record["value"]
        position = (change["epoch"], change["seq"])
        assert position not in seen, "a change is in the topic twice"
        seen.add(position)
        if change["op"] in ("+I", "+U"):
            rows[record["key"]] = change["row"]
        elif change["op"] == "-D":
            del rows[record["key"]]
    return list(rows.values())
