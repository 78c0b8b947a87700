"""Half an hour of steady load with a fault a minute: nothing may grow but what the job knows.

    changes, all the time ─► topic ─► job of a service, which starts it again ─► changelog topic
                  a process killed, stopped for a while, the broker paused ─┘

Every ten seconds the job is looked at: memory of its processes, live files and files on disk, how
long commits and epochs take, the size of its cache. Each has to be as flat as its table says, by a
line through all looks of the second half. RETALLY_SOAK_SECONDS makes it shorter or longer.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from bench.process_tree import anonymous_bytes, descendants
from jobs.edge.process.broker import Broker
from jobs.reading.files import live_files, open_table
from tests.support.command.shop import Shop
from tests.support.faults.load import BACK_SECONDS_MAX, check_job, served_job, spec, under_load
from tests.support.faults.single_faults import (
    BROKER,
    DRIVER,
    JVM,
    WORKER,
    Fault,
    driver_of,
    kill,
    pause,
    strike,
)
from tests.support.faults.tally import RESULTS, FaultTally
from tests.support.jobs.running_job import RunningJob
from tests.support.service.served import eventually

SECONDS = float(os.environ.get("RETALLY_SOAK_SECONDS", "1800"))
FAULT_EVERY_SECONDS = 60.0
LOOK_EVERY_SECONDS = 10.0
MIB = 2**20

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.faults,
    pytest.mark.timeout(int(SECONDS) + 600),
]

FAULTS = (kill(DRIVER), kill(WORKER), pause(BROKER, 5), kill(JVM), pause(WORKER, 5), pause(JVM, 5))

# What may be added in an hour, going on as in the second half, of the median of that half. The
# rows of the shop become more all the time, so the cache may grow a little.
GROWTH_MAX = {
    "memory_mib": 0.5,
    "live_files": 0.5,
    "commit_ms": 1.0,
    "epoch_ms": 1.0,
    "cache_mib": 1.0,
}


@dataclass(slots=True)
class Looks:
    """What was seen, look by look."""

    at: list[float] = field(default_factory=list)
    seen: dict[str, list[float]] = field(default_factory=dict)

    def add(self, **values: float) -> None:
        self.at.append(time.monotonic())
        for name, value in values.items():
            self.seen.setdefault(name, []).append(value)

    def growth(self, name: str) -> tuple[float, float]:
        """The median of the second half, and what it grows by in an hour, as a share of it."""
        half = len(self.at) // 2
        values = self.seen[name][half:]
        slope, _ = np.polyfit(np.array(self.at[half:]) / 3_600, values, 1)
        median = statistics.median(values)
        return median, float(slope) / max(median, 1e-9)


def test_half_an_hour_of_faults_leaves_nothing_behind(broker: Broker, tmp_path: Path) -> None:
    topic = f"shop-{uuid.uuid4().hex[:8]}"
    shop = Shop(broker.address, topic, seed=30)
    steady = {"size": 500, "latency": "1s", "max_rows": 1_000}
    job = RunningJob(spec(topic) | {"minibatch": steady}, tmp_path, broker.address)
    tally, looks = FaultTally("soak: a fault a minute"), Looks()
    with served_job(job) as client:
        with under_load(shop):
            eventually(lambda: (client.job("items").epoch or 0) > 3, BACK_SECONDS_MAX)
            for fault in faults(SECONDS):
                calm = time.monotonic() + FAULT_EVERY_SECONDS
                strike(client, job, fault, broker, tally)
                while time.monotonic() < calm:
                    look(job, looks)
                    time.sleep(LOOK_EVERY_SECONDS)
        shop.close()
        eventually(lambda: getattr(client.job("items").lag, "records", 1) == 0, BACK_SECONDS_MAX)
    job.must_run_by_itself()
    check_job(job, shop, tally)
    must_be_flat(looks)


def faults(seconds: float) -> Iterator[Fault]:
    """All of them in turn, each round in another order, so many as there are minutes."""
    dice = random.Random(30)
    left = int(seconds / FAULT_EVERY_SECONDS)
    while left:
        for fault in dice.sample(FAULTS, min(left, len(FAULTS))):
            left -= 1
            yield fault


def look(job: RunningJob, looks: Looks) -> None:
    pid = driver_of(job)
    if pid is None:
        return
    counters = [row.counters for row in job.epochs()[-10:]]
    told = [each for each in counters if "phases_ms" in each and "compute_seconds" in each]
    if not told:  # the first epoch of a start has none
        return
    cache = job.data / "cache"
    looks.add(
        memory_mib=sum(anonymous_bytes(each) for each in descendants(pid)) / MIB,
        live_files=len(live_files(open_table(job.table))),
        commit_ms=statistics.median(each["phases_ms"].get("commit", 0.0) for each in told),
        epoch_ms=statistics.median(each["compute_seconds"] * 1_000 for each in told),
        cache_mib=sum(path.stat().st_blocks * 512 for path in cache.rglob("columns")) / MIB,
    )


def must_be_flat(looks: Looks) -> None:
    """Said, kept beside the result lines, and held against what may be."""
    told = {name: looks.growth(name) for name in GROWTH_MAX}
    line = {
        "suite": "soak: slopes",
        "looks": len(looks.at),
        **{name: {"median": round(m, 1), "an_hour": round(g, 3)} for name, (m, g) in told.items()},
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print("\n" + json.dumps(line))
    grown = {name: told[name][1] for name, most in GROWTH_MAX.items() if told[name][1] > most}
    assert not grown, f"what grows in an hour, as a share of itself: {grown}"
