"""Plain events through Kafka, Spark and Delta: the results of the replay, bad ones refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobs.offline.replay import replay
from tests.support.jobs.epochs_by_hand import ByHand

pytestmark = [pytest.mark.spark, pytest.mark.broker]

DOCUMENT: dict[str, Any] = {
    "columns": {"shop": "STRING", "amount": "INT", "at": "BIGINT"},
    "query": "SELECT shop, window_start, SUM(amount) AS total, COUNT(DISTINCT amount) AS kinds "
    "FROM orders GROUP BY shop, TUMBLE(at, INTERVAL '1' SECOND)",
    "watermark": {"time": {"column": "at"}, "within_epoch": True},
    "emit": "final",
    "max_bad_fraction": 1.0,
}
SECTIONS: dict[str, dict[str, Any]] = {
    "csv": {"csv": {"delimiter": ";"}},
    "json": {"json": {"paths": {"amount": "order.amount"}}},
}
EVENTS = [("a", 1, 100), ("a", 2, 900), ("b", 1, 1_500), ("a", 4, 200), ("b", "x", 2_500)]
AFTER = [("a", 7, 3_200)]


def message(format: str, event: tuple[Any, ...]) -> bytes:
    if format == "csv":
        return ";".join(map(str, event)).encode()
    shop, amount, at = event
    return json.dumps({"shop": shop, "order": {"amount": amount}, "at": at}).encode()


@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_job_over_plain_events_is_its_replay(format: str, by_hand: ByHand) -> None:
    section = SECTIONS[format]
    document = {**DOCUMENT, "source": {"topic": by_hand.topic, "format": format, **section}}
    job = by_hand.job(document)
    epochs = [[(0, message(format, event)) for event in part] for part in (EVENTS, AFTER)]
    for epoch in epochs:
        job.epoch_of(epoch)
    steps: list[dict[str, Any]] = []
    for epoch in epochs:
        steps += [{"message": value.decode()} for _, value in epoch]
        steps.append({"flush": True})
    expected = list(replay({"name": "by-hand", **document}, steps))
    rows = [each["row"] for each in expected if "op" in each]
    assert {(row["shop"], row["total"]) for row in rows} >= {("a", 3), ("b", 1)}
    assert job.results()
    refused = [each["rejected"]["reason"] for each in expected if "rejected" in each]
    assert [each["reason"] for each in job.quarantine()] == refused
    assert len(job.late()) == sum("late" in each for each in expected) == 1
