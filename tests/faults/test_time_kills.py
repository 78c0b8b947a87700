"""Jobs whose results move with time, killed at any moment, over random histories.

    changes with times of their own ─► retally run, killed ─► run again ─► ... ─► audit, topic

What time makes due is in the table, so a kill may neither forget nor repeat it.
"""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
import uuid
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from jobs.edge.process.broker import Broker
from tests.support.command.waiting import repeating
from tests.support.faults.load import check_topic, newest_epoch
from tests.support.faults.tally import FaultTally
from tests.support.jobs.running_job import RunningJob, create_topic, produce

KILLS = 8
PARTITIONS = 3
EPOCH_SECONDS_MAX = 90.0
EVENT_MS_A_SECOND = 2_000  # event time runs so fast
BEGAN_MS = 1_700_000_000_000

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(1_500)]

WINDOWED = "SELECT k, window_start, window_end, SUM(v) AS s, MAX(v) AS top FROM t GROUP BY k, "
PLAIN = "SELECT k, SUM(v) AS s, MAX(v) AS top, COUNT(*) AS n FROM t GROUP BY k"
BOUNDED = {"time": {"column": "t"}, "delay": "1s", "idle_after": "5s"}
JOBS: dict[str, dict[str, Any]] = {
    "windows that close": {
        "query": WINDOWED + "TUMBLE(t, INTERVAL '5' SECOND)",
        "watermark": BOUNDED,
        "emit": "final",
        "allowed_lateness": "2s",
    },
    "sessions that close": {
        "query": WINDOWED + "SESSION(t, INTERVAL '3' SECOND)",
        "watermark": BOUNDED,
        "emit": "changes",
        "allowed_lateness": "2s",
    },
    "the event clock": {
        "query": PLAIN,
        "watermark": BOUNDED,
        "minibatch": {"clock": "event", "interval": "2s", "max_rows": 400},
    },
    "groups that expire": {"query": PLAIN, "state": {"buckets": 8, "ttl": "4s"}},
}


class History:
    """Rows that live in one partition each, with times around a moment that goes on."""

    def __init__(self, brokers: str, topic: str, seed: str) -> None:
        self._brokers, self._topic, self._dice = brokers, topic, random.Random(seed)
        self._rows: list[dict[str, str]] = []
        self._next = 0
        self._began = time.monotonic()
        create_topic(brokers, topic, PARTITIONS)

    def going_on(self) -> AbstractContextManager[None]:
        return repeating(self._feed)

    def _feed(self) -> None:
        produce(self._brokers, self._topic, [self._change() for _ in range(20)])

    def _change(self) -> tuple[int, bytes]:
        choice = self._dice.random()
        document: dict[str, Any]
        if choice < 0.5 or len(self._rows) < 5:
            self._next += 1
            row = self._row(self._next)
            document = {"type": "INSERT", "data": [row]}
            self._rows.append(row)
        elif choice < 0.8:
            place = self._dice.randrange(len(self._rows))
            before = self._rows[place]
            row = self._rows[place] = self._row(int(before["id"]))
            document = {"type": "UPDATE", "data": [row], "old": [before]}
        else:
            row = self._rows.pop(self._dice.randrange(len(self._rows)))
            document = {"type": "DELETE", "data": [row]}
        return int(row["id"]) % PARTITIONS, json.dumps(document).encode()

    def _row(self, number: int) -> dict[str, str]:
        """Some times are late, a few much too late."""
        now = int((time.monotonic() - self._began) * EVENT_MS_A_SECOND)
        at = now + self._dice.choice([0, 300, 800, -900, -4_000, -20_000])
        moment = time.gmtime((BEGAN_MS + max(0, at)) / 1_000)
        text = f"{time.strftime('%Y-%m-%d %H:%M:%S', moment)}.{max(0, at) % 1_000:03}"
        values = {"k": self._dice.choice("abcdef"), "v": str(self._dice.randint(-9, 99))}
        return {"id": str(number), **values, "t": text}


@pytest.mark.parametrize("name", JOBS)
def test_kills_forget_and_repeat_nothing_that_time_makes_due(
    name: str, broker: Broker, tmp_path: Path
) -> None:
    topic = f"timed-{uuid.uuid4().hex[:8]}"
    history = History(broker.address, topic, name)
    job = RunningJob(
        {
            "name": "items",
            "source": {"topic": topic},
            "columns": {"id": "BIGINT", "k": "STRING", "v": "INT", "t": "TIMESTAMP(3)"},
            "minibatch": {"size": 20, "latency": "100ms", "max_rows": 400},
            "sink": {"topic": f"{topic}-changes", "partitions": 2},
            "state": {"buckets": 8},
            **JOBS[name],
        },
        tmp_path,
        broker.address,
    )
    tally, dice = FaultTally(f"kills of a job with {name}"), random.Random(name)
    with history.going_on():
        for _ in range(KILLS):
            tally.plan("kill")
            tally.recoveries.append(killed(job, dice))
            tally.fire("kill")
    job.must_run_by_itself()
    check_topic(job, tally)
    reached = [row.watermarks.get("combined") for row in job.epochs()]
    known = [watermark for watermark in reached if watermark is not None]
    assert known == sorted(known), "the watermark went back"
    made_due = [row.counters for row in job.epochs() if row.kind == "time"]
    assert any(each.get("changelog_rows") or each.get("closed") for each in made_due)
    if "ttl" not in job.spec["state"]:  # what has expired cannot be recomputed
        assert job.ask("audit", "items", "--brokers", job.brokers)[0]["verdict"] == "equal"


def killed(job: RunningJob, dice: random.Random) -> float:
    """Start the job, kill it some epochs later; how long its first epoch took to come."""
    before, began = newest_epoch(job), time.monotonic()
    process = job.start(caught_up=False)
    drain = threading.Thread(target=_drain, args=(process,), daemon=True)
    drain.start()
    try:
        while newest_epoch(job) <= before:
            assert process.poll() is None, "the job ended by itself"
            assert time.monotonic() - began < EPOCH_SECONDS_MAX, "no epoch"
            time.sleep(0.05)
        recovered = time.monotonic() - began
        time.sleep(2 + 4 * dice.random())
    finally:
        process.kill()
        process.wait()
        drain.join()
    return recovered


def _drain(process: subprocess.Popen[str]) -> None:
    """Its output, so that its pipe never fills."""
    assert process.stdout is not None
    for _ in process.stdout:
        pass
