"""Windows through Kafka, Spark and Delta say what the replay of the same messages says."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from jobs.edge.broker import Broker
from jobs.replay import replay
from tests.change_scripts import per_key, shown
from tests.pipeline.epochs_by_hand import EpochsByHand, spec_of
from tests.pipeline.running import create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Message = tuple[int, bytes]  # its partition and value
TUMBLE = "TUMBLE(t, INTERVAL '10' SECOND)"
HOP = "HOP(t, INTERVAL '5' SECOND, INTERVAL '10' SECOND)"
EPOCHS = 3


def messages(random: Random, live: list[dict[str, str | None]]) -> list[Message]:
    """Inserts, updates and deletes of rows around 1970; some rows have no time."""
    made: list[Message] = []
    for _ in range(40):
        time = random.choice(["1969-12-31 23:59:5", "1970-01-01 00:00:0"]) + str(
            random.randint(0, 9)
        )
        row = {
            "k": random.choice("abc"),
            "v": str(random.randint(1, 9)),
            "t": None if random.random() < 0.05 else f"{time}.{random.randint(0, 999):03}",
        }
        turn = random.random()
        document: dict[str, Any]
        if turn < 0.5 or not live:
            document = {"type": "INSERT", "data": [row]}
            live.append(row)
        elif turn < 0.8:
            at = random.randrange(len(live))
            old = {name: value for name, value in live[at].items() if value != row[name]}
            if not old:
                continue
            document = {"type": "UPDATE", "data": [row], "old": [old]}
            live[at] = row
        else:
            document = {"type": "DELETE", "data": [live.pop(random.randrange(len(live)))]}
        made.append((random.randint(0, 1), json.dumps(document).encode()))
    return made


def steps_of(epochs: list[list[Message]]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for epoch in epochs:
        steps += [{"message": value.decode(), "partition": number} for number, value in epoch]
        steps.append({"flush": True})
    return steps


@pytest.mark.parametrize("window", [pytest.param(TUMBLE, id="tumble"), pytest.param(HOP, id="hop")])
def test_windows_are_those_of_the_replay(
    window: str, spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    document = {
        "source": {"topic": topic},
        "columns": {"k": "STRING", "v": "INT", "t": "TIMESTAMP(3)"},
        "query": "SELECT k, window_start, window_end, SUM(v) AS s, MAX(v) AS top FROM t "
        f"WHERE v > 1 GROUP BY k, {window}",
        "watermark": {"time": {"column": "t"}},
        "minibatch": {"size": 100_000, "latency": "1h"},
        "max_bad_fraction": 1.0,
    }
    random, live = Random(window), list[dict[str, str | None]]()
    epochs = [messages(random, live) for _ in range(EPOCHS)]
    expected: list[list[str]] = [[]]
    rejected: list[str] = []
    for each in replay({"name": "by-hand", **document}, steps_of(epochs)):
        if "op" in each:
            expected[-1].append(shown(each["op"], each["row"].values()))
        elif "rejected" in each:
            rejected.append(each["rejected"]["reason"])
        elif "flushed" in each:
            expected.append([])
    create_topic(broker.address, topic, 2)
    job = EpochsByHand(spark, broker.address, tmp_path, spec_of(document))
    for epoch, lines in zip(epochs, expected, strict=False):
        row = job.epoch_of(epoch)
        assert per_key(job.lines(row.epoch), 3) == per_key(lines, 3)
        assert row.counters["where_filtered"] < row.counters["shipped"]
    assert rejected
    assert sorted(each["reason"] for each in job.quarantine()) == sorted(rejected)
    assert job.results()
