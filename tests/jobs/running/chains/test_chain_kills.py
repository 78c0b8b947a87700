"""Both jobs of a chain killed and rewound in turn: every window has the sum of its rows.

    rows ─► job 1: minutes ─► its changelog and progress ─► job 2: two minutes, from: progress
              └──── killed at any moment, rewound ────┘            the end: both are drained

The truth is the sum of the live rows, computed here. No row comes late for the first job, so a
window that misses one was closed too early or has lost it.
"""

from __future__ import annotations

import random
import signal
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from jobs.edge.process.broker import Broker
from tests.support.command.waiting import repeating
from tests.support.faults.load import check_topic, newest_epoch
from tests.support.faults.tally import FaultTally
from tests.support.jobs.chain import jobs_on, message, totals
from tests.support.jobs.running_job import RunningJob, produce

ROUNDS = 8
PARTITIONS = 3
EPOCH_SECONDS_MAX = 90.0
EVENT_SECONDS_A_SECOND = 20  # so a window of the second job ends every 6 s

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(1_500)]


class Rows:
    """Rows in the order of their times, in every partition; some are deleted at once."""

    def __init__(self, brokers: str, topic: str, seed: int) -> None:
        self._brokers, self._topic, self._dice = brokers, topic, random.Random(seed)
        self._began = time.monotonic()
        self.truth: Counter[tuple[str, int]] = Counter()  # name, minute of the window's start

    def coming(self) -> AbstractContextManager[None]:
        return repeating(self._feed)

    def _feed(self) -> None:
        now = (time.monotonic() - self._began) * EVENT_SECONDS_A_SECOND
        produce(self._brokers, self._topic, self._changes(now))

    def _changes(self, seconds: float) -> Iterator[tuple[int, bytes]]:
        for number in range(20):
            name, cnt = self._dice.choice("abcdef"), self._dice.randint(1, 99)
            yield number % PARTITIONS, message(name, cnt, seconds)
            if self._dice.random() < 0.2:
                yield number % PARTITIONS, message(name, cnt, seconds, "DELETE")
            else:
                self.truth[name, int(seconds // 120) * 2] += cnt


def test_windows_over_a_changelog_are_those_of_a_run_without_faults(
    broker: Broker, tmp_path: Path
) -> None:
    topic = f"chain-{uuid.uuid4().hex[:8]}"
    chain = first, second = jobs_on(broker, topic, tmp_path, PARTITIONS)
    rows, dice = Rows(broker.address, topic, seed=24), random.Random(24)
    tally = FaultTally(
        "kills and rewinds of both jobs of a chain that takes its time from progress"
    )
    with rows.coming():
        first.must_run_by_itself()  # the second needs its progress topic
        for number in range(ROUNDS):
            victim = chain[number % 2]
            tally.plan("kill")
            tally.recoveries.append(killed(chain, victim, dice))
            tally.fire("kill")
            if number in (2, 5):
                rewind(victim, tally, dice)
    for job in chain:
        job.options = ("--drain",)
        job.must_run_by_itself()
    assert totals(second) == dict(rows.truth)
    assert not first.part("late")
    late = Counter[str]()  # what a rewound first job takes back, and gives again
    for row in second.part("late"):
        assert row["late_became"] is None
        late[row["late_row"]] += row["late_weight"]
    assert set(late.values()) <= {0}
    assert all(job.epochs()[-1].time.ended for job in chain)
    check_topic(second, tally)


def killed(chain: tuple[RunningJob, ...], victim: RunningJob, dice: random.Random) -> float:
    """Run both jobs and kill one; return how long its first epoch took to come."""
    before, began = newest_epoch(victim), time.monotonic()
    processes = [job.start(caught_up=False) for job in chain]
    drains = [threading.Thread(target=_drain, args=(each,), daemon=True) for each in processes]
    for drain in drains:
        drain.start()
    try:
        while newest_epoch(victim) <= before:
            assert all(each.poll() is None for each in processes), "a job ended by itself"
            assert time.monotonic() - began < EPOCH_SECONDS_MAX, "no epoch"
            time.sleep(0.05)
        recovered = time.monotonic() - began
        time.sleep(2 + 4 * dice.random())
    finally:
        for job, process in zip(chain, processes, strict=True):
            process.send_signal(signal.SIGKILL if job is victim else signal.SIGTERM)
        for process in processes:
            process.wait()
        for drain in drains:
            drain.join()
    return recovered


def rewind(job: RunningJob, tally: FaultTally, dice: random.Random) -> None:
    """Rewind a stopped job to one of its newer epochs."""
    tally.plan("rewind")
    epochs = [row.epoch for row in job.epochs() if row.kind in ("data", "time")]
    to = dice.choice(epochs[-10:-1])
    job.ask("rewind", str(job.spec["name"]), "--to", str(to), "--brokers", job.brokers)
    tally.fire("rewind")


def _drain(process: subprocess.Popen[str]) -> None:
    """Read its output, so that its pipe never fills."""
    assert process.stdout is not None
    for _ in process.stdout:
        pass
