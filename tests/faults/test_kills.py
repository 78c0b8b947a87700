"""Sixty kills under load: at every failpoint of a running job, and at any moment.

    changes, all the time ─► topic ─► retally run, killed ─► run again ─► killed ─► ... ─► the truth

A worker, the publisher or the merging process may die as well as the driver; whatever a death
leaves of the job is ended by kill -9 too. Recovered is who has committed again.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jobs.edge.process.broker import Broker
from jobs.edge.process.job_directory import JobDirectory
from tests.support.command.shop import Shop
from tests.support.faults.load import check_job, newest_epoch, spec, under_load
from tests.support.faults.tally import FaultTally
from tests.support.jobs.running_job import RunningJob

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(2_400)]

CYCLES = 60
FIRE_SECONDS_MAX = 90.0
DEATH_SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Kill:
    """A failpoint, and whether the job ends by it (else it goes on, and is killed by hand)."""

    failpoint: str
    action: str = "kill"
    ends: bool = True
    passings: int = 4  # it acts at one of the first so many
    loses_cache: bool = False  # of the hot state, before that start


KILLS = (
    Kill("start_checked", passings=1),
    Kill("publisher_fenced", passings=1),
    Kill("hot_state_written", ends=False),
    Kill("hot_state_half_built", ends=False, loses_cache=True),
    Kill("decode_task", ends=False),
    Kill("fold_task", ends=False),
    Kill("after_tasks"),
    Kill("before_commit"),
    Kill("after_commit"),
    Kill("commit_reply_lost", "lost", ends=False),
    Kill("epoch_sent"),
    Kill("publish_begun"),
    Kill("publish_produced"),
    Kill("publish_committed"),
    Kill("compaction", ends=False, passings=1),
    Kill("compaction_commit", passings=1),
    Kill("", ends=False),  # at any moment
)


def test_sixty_kills_under_load_lose_and_repeat_nothing(broker: Broker, tmp_path: Path) -> None:
    topic = f"shop-{uuid.uuid4().hex[:8]}"
    shop = Shop(broker.address, topic, seed=60)
    job = RunningJob(spec(topic), tmp_path, broker.address)
    tally = FaultTally("kills at every failpoint, real broker and Spark")
    dice = random.Random(60)
    died: float | None = None
    with under_load(shop):
        for cycle in range(CYCLES):
            died = one_death(job, KILLS[cycle % len(KILLS)], tally, dice, died)
    shop.close()
    job.must_run_by_itself()
    recovered(job, died, tally)
    check_job(job, shop, tally)


def one_death(
    job: RunningJob, kill: Kill, tally: FaultTally, dice: random.Random, died: float | None
) -> float:
    """Start the job, have it die; when that was."""
    name = kill.failpoint or "any moment"
    tally.plan(name)
    for mark in job.marks.iterdir():
        mark.unlink()
    if kill.loses_cache:
        shutil.rmtree(JobDirectory(job.data, str(job.spec["name"])).cache)
    nth = dice.randint(1, kill.passings)
    points = f"{kill.failpoint}={kill.action}@{nth}" if kill.failpoint else ""
    log = job.home / "run.log"
    process = job.start(points, caught_up=False)
    drain = threading.Thread(target=_drain, args=(process, log), daemon=True)
    drain.start()
    try:
        if kill.failpoint:
            _until(lambda: job.fired(kill.failpoint), FIRE_SECONDS_MAX, f"{name} never fired", log)
        else:
            _until(lambda: newest_epoch(job) > 0, FIRE_SECONDS_MAX, "no epoch", log)
            time.sleep(12.0 + 3 * dice.random())
        if kill.ends:
            process.wait(DEATH_SECONDS_MAX)
            assert process.returncode != 0, log.read_text()[-2_000:]
        else:
            time.sleep(dice.random())
    finally:
        process.kill()
        process.wait()
        drain.join()
    tally.fire(name)
    recovered(job, died, tally)
    return time.time()


def recovered(job: RunningJob, died: float | None, tally: FaultTally) -> None:
    """How long after a death the next epoch was committed; a run that died before its first one
    leaves the wait to the next."""
    if died is None:
        return
    after = [row.committed_at / 1e6 - died for row in job.epochs() if row.committed_at / 1e6 > died]
    if after:
        tally.recoveries.append(min(after))


def _until(done: Any, seconds: float, otherwise: str, log: Path) -> None:
    give_up = time.monotonic() + seconds
    while not done():
        said = log.read_text()[-2_000:] if log.exists() else ""
        assert time.monotonic() < give_up, f"{otherwise}; it said:\n{said}"
        time.sleep(0.05)


def _drain(process: subprocess.Popen[str], log: Path) -> None:
    """Its output, so that its pipe never fills."""
    assert process.stdout is not None
    with log.open("w") as file:
        for line in process.stdout:
            file.write(line)
            file.flush()
