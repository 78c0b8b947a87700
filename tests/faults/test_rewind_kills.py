"""A rewind killed at each of its steps has happened or has not, and the next one finishes it.

epochs 1..n ─► retally rewind --to 1, killed ─► the same once more ─► retally run ─► the truth
"""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from pathlib import Path

import pytest

from jobs.edge.process.broker import Broker
from tests.support.command.shop import Shop
from tests.support.faults.load import check_job, spec
from tests.support.faults.tally import FaultTally
from tests.support.jobs.running_job import CHECKOUT, RUN_SECONDS_MAX, RunningJob

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(900)]

# The step at which it dies, and whether the rewind is committed then.
STEPS = {"rewind_kept": False, "before_commit": False, "after_commit": True}
CHANGES = 600


def test_a_rewind_killed_at_any_step_loses_and_repeats_nothing(
    broker: Broker, tmp_path: Path
) -> None:
    shop = Shop(broker.address, f"shop-{uuid.uuid4().hex[:8]}", seed=77)
    job = RunningJob(spec(shop.topic), tmp_path, broker.address)
    tally = FaultTally("rewind killed at each of its steps")
    for step, done in STEPS.items():
        shop.feed(CHANGES)
        job.must_run_by_itself()
        before = job.epochs()
        tally.plan(step)
        code, said = rewound(job, before[1].epoch, f"{step}=kill")
        assert code == -signal.SIGKILL, said
        tally.fire(step)
        committed = len(job.epochs()) > len(before)
        assert committed == done, step
        if not done:
            code, said = rewound(job, before[1].epoch)
            assert code == 0, said
        after = job.epochs()
        assert after[-1].kind == "rewind"
        assert after[-1].offsets == before[1].offsets
        assert [row.epoch for row in after] == [row.epoch for row in before] + [after[-1].epoch]
    job.must_run_by_itself()
    shop.close()
    check_job(job, shop, tally)


def rewound(job: RunningJob, epoch: int, failpoints: str = "") -> tuple[int, str]:
    words = ["rewind", str(job.spec["name"]), "--data", str(job.data), "--to", str(epoch)]
    done = subprocess.run(
        job.command(*words, "--brokers", job.brokers),
        cwd=CHECKOUT,
        env={**os.environ, "RETALLY_FAILPOINTS": failpoints},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
    )
    return done.returncode, done.stdout + done.stderr
