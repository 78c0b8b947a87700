"""Whether everything that the job has told is exact, while its source is stopped.

shop, made again ──► truth ──┬── results over HTTP
topic, folded here ──────────┤
sink, folded here ───────────┘   each record once, in order, retracting the current row
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jobs.demo.shop import Shop
from jobs.demo.source import make_changes
from jobs.demo.specs import PARTITIONS, SOURCE_TOPIC
from jobs.edge.kafka.admin import KafkaAdmin
from tests.compose.stack import Stack
from tests.support.faults.load import disordered, place
from tests.support.faults.tally import FaultTally
from tests.support.jobs.running_job import consumed
from tests.support.topics import committed_records

SINK = "items-changes"
Table = dict[str, tuple[int, int, int]]


def check_exact(
    stack: Stack, tally: FaultTally, sink: str = SINK, *, start_source: bool = True
) -> None:
    """Stop the source, wait until the job has read all, compare, and start the source again."""
    stack.compose("--profile", "demo", "stop", "demo")
    truth, count = _shop_truth(stack.brokers)
    assert _fold_of_topic(stack.brokers) == truth, "the topic is not the shop's history"
    stack.until(lambda: table(stack.rows()) == truth, f"results, which should be {truth}")
    stack.until(lambda: len(_fold_of_sink(stack.brokers, sink)) == len(truth), "the sink")
    records = consumed(stack.brokers, sink)
    folded = _fold_of_sink(stack.brokers, sink)
    tally.inputs, tally.outputs = count, len(records)
    tally.lost += sum(folded.get(name) != row for name, row in truth.items())
    tally.lost += len(set(folded) - set(truth))
    tally.duplicates += len(records) - len({place(record["value"]) for record in records})
    tally.out_of_order += disordered(records)
    if start_source:
        stack.compose("--profile", "demo", "start", "demo")


def table(rows: list[dict[str, Any]]) -> Table:
    return {row["name"]: (int(row["sum_cnt"]), int(row["top"]), int(row["n"])) for row in rows}


def _shop_truth(brokers: str) -> tuple[Table, int]:
    """Make the shop's changes again, up to those that the topic has."""
    with KafkaAdmin({"bootstrap_servers": [brokers]}) as admin:
        there = admin.end_offsets(SOURCE_TOPIC)
    shop = Shop(1, PARTITIONS)
    changes = make_changes(shop, there)
    for _ in range(sum(there.values())):
        assert next(changes) is None, "the source has left a gap in a partition"
    return table(list(shop.compute_truth().values())), sum(there.values())


def _fold_of_topic(brokers: str) -> Table:
    rows: dict[int, tuple[str, int]] = {}
    for record in committed_records(brokers, SOURCE_TOPIC):
        for message in _readable(record.value):
            for row in message["data"]:
                if message["type"] == "DELETE":
                    del rows[int(row["id"])]
                else:
                    rows[int(row["id"])] = row["name"], int(row["cnt"])
    found: dict[str, list[int]] = {}
    for name, count in rows.values():
        found.setdefault(name, []).append(count)
    return {name: (sum(counts), max(counts), len(counts)) for name, counts in found.items()}


def _readable(value: bytes) -> list[Mapping[str, Any]]:
    """The message, unless it is one of those that a job must refuse."""
    try:
        message = json.loads(value)
    except ValueError:
        return []
    if message["isDdl"] or message["type"] not in ("INSERT", "UPDATE", "DELETE"):
        return []
    if any(not str(row["cnt"]).lstrip("-").isdigit() for row in message["data"]):
        return []
    return [message]


def _fold_of_sink(brokers: str, sink: str) -> Table:
    found: dict[str, Any] = {}
    for record in consumed(brokers, sink):
        change = record["value"]
        if change["op"] in ("+I", "+U"):
            found[record["key"]] = change["row"]
        else:
            found.pop(record["key"], None)
    return table(list(found.values()))
