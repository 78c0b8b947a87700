"""The broker killed and started again, the broker paused, a second driver: with real Spark, under a
service that starts its job again where it ended.

    feed ─► the broker is gone, or stands still, for a while ─► feed ─► the job goes on, exactly
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest

from bench.process_tree import descendants
from jobs.edge.process.broker import Broker
from retally import Client
from service.supervision import job_process
from tests.support.command.shop import Shop
from tests.support.faults.load import BACK_SECONDS_MAX, check_job, newest_epoch, served_job, spec
from tests.support.faults.tally import FaultTally
from tests.support.jobs.running_job import RunningJob
from tests.support.service.served import eventually

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(2_400)]

ROUNDS = 10
GONE_SECONDS = 4.0
CHANGES = 300
EPOCH_CHANGES = 500  # more than an epoch of these jobs takes


def goes_on(client: Client, shop: Shop, tally: FaultTally) -> None:
    """Until the job has committed what is fed now."""
    began, epoch = time.monotonic(), client.job("items").epoch or 0
    shop.feed(CHANGES)
    eventually(lambda: (client.job("items").epoch or 0) > epoch, BACK_SECONDS_MAX)
    eventually(lambda: getattr(client.job("items").lag, "records", 1) == 0, BACK_SECONDS_MAX)
    tally.recoveries.append(time.monotonic() - began)


def test_a_broker_that_is_killed_or_stands_still_costs_nothing_but_time(tmp_path: Path) -> None:
    tally = FaultTally("broker killed and paused, real Spark")
    with Broker(tmp_path / "broker") as broker:
        shop = Shop(broker.address, f"shop-{uuid.uuid4().hex[:8]}", seed=9)
        job = RunningJob(spec(shop.topic), tmp_path / "job", broker.address)
        with served_job(job) as client:
            goes_on(client, shop, tally)
            for number in range(ROUNDS):
                fault = "killed" if number % 2 else "paused"
                tally.plan(fault)
                shop.feed(CHANGES)  # so that an epoch is on its way
                if fault == "killed":
                    broker.kill()
                    time.sleep(GONE_SECONDS)
                    broker.start()
                else:
                    os.kill(broker.java_pid, signal.SIGSTOP)
                    time.sleep(GONE_SECONDS)
                    os.kill(broker.java_pid, signal.SIGCONT)
                tally.fire(fault)
                goes_on(client, shop, tally)
        shop.close()
        job.must_run_by_itself()
        check_job(job, shop, tally)


def test_of_two_drivers_one_goes_on(broker: Broker, tmp_path: Path) -> None:
    """The first one stands still, as a machine that swaps does, and its lock is taken from it: a
    second host does not see it. It wakes up to find that it was overtaken."""
    tally = FaultTally("two drivers, real Spark")
    shop = Shop(broker.address, f"shop-{uuid.uuid4().hex[:8]}", seed=10)
    job = RunningJob(spec(shop.topic), tmp_path, broker.address)
    for number in range(ROUNDS):
        tally.plan("overtaken")
        shop.feed(2 * EPOCH_CHANGES)
        first = job.start(f"before_commit=stall:3@{1 + number % 2}", caught_up=False)
        # It must not be found by its lock, as that of another host would not be.
        eventually(lambda: job.fired("before_commit"), BACK_SECONDS_MAX)
        stopped = _family(first)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        (job.table.parent / "lock").unlink()
        began = time.monotonic()
        shop.feed(CHANGES)
        job.must_run_by_itself()
        tally.recoveries.append(time.monotonic() - began)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        code = _end(first)
        assert code not in (0, None), "the first driver went on"
        tally.fire("overtaken")
        for mark in job.marks.iterdir():
            mark.unlink()
    shop.close()
    job.must_run_by_itself()
    check_job(job, shop, tally)


def _family(process: subprocess.Popen[str]) -> list[int]:
    """A driver and all that it has started."""
    return descendants(process.pid)


def _end(process: subprocess.Popen[str]) -> int:
    try:
        process.communicate(timeout=BACK_SECONDS_MAX)
    finally:
        process.kill()
    return process.returncode


def test_a_driver_is_found_by_its_lock(broker: Broker, tmp_path: Path) -> None:
    """Which is why the test above has to take it away."""
    shop = Shop(broker.address, f"shop-{uuid.uuid4().hex[:8]}", seed=11)
    job = RunningJob(spec(shop.topic), tmp_path, broker.address)
    shop.feed(CHANGES)
    first = job.start(caught_up=False)
    try:
        eventually(lambda: newest_epoch(job) > 0, BACK_SECONDS_MAX)
        assert job_process.find_writer(job.table.parent / "lock") == first.pid
        code, said = job.run()
        assert code != 0
        assert f"owned by process {first.pid}" in said, said
    finally:
        first.terminate()
        _end(first)
    shop.close()
