"""A hundred faults of single parts of a job, with nothing else on the machine.

    changes, all the time ─► topic ─► job of a service, which starts it again ─► changelog topic
         one part killed, paused or without its files, then two more epochs ─┘   ─► the truth

RETALLY_SINGLE_FAULTS makes it longer or shorter.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from pathlib import Path

import pytest

from jobs.edge.process.broker import Broker
from tests.support.command.shop import Shop
from tests.support.faults.load import BACK_SECONDS_MAX, check_job, served_job, spec, under_load
from tests.support.faults.single_faults import (
    DRIVER,
    JVM,
    PUBLISHER,
    WORKER,
    kill,
    lose_hot_state,
    lose_shared_memory,
    pause,
    strike,
)
from tests.support.faults.tally import FaultTally
from tests.support.jobs.running_job import RunningJob
from tests.support.service.served import eventually

ROUNDS = int(os.environ.get("RETALLY_SINGLE_FAULTS", "100"))
CALM_SECONDS_MAX = 2.0  # between two faults, so that they meet a job in any of its phases

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(7_200)]

FAULTS = (
    kill(DRIVER),
    kill(WORKER),
    kill(PUBLISHER),
    pause(JVM, 20),
    lose_hot_state(),
    lose_shared_memory(),
)


def test_a_hundred_faults_of_single_parts_lose_and_repeat_nothing(
    broker: Broker, tmp_path: Path
) -> None:
    topic = f"shop-{uuid.uuid4().hex[:8]}"
    shop = Shop(broker.address, topic, seed=100)
    job = RunningJob(spec(topic), tmp_path, broker.address)
    tally = FaultTally("faults of single parts, nothing beside it")
    dice = random.Random(100)
    with served_job(job) as client:
        with under_load(shop):
            eventually(lambda: (client.job("items").epoch or 0) > 3, BACK_SECONDS_MAX)
            for number in range(ROUNDS):
                strike(client, job, FAULTS[number % len(FAULTS)], broker, tally)
                time.sleep(dice.random() * CALM_SECONDS_MAX)
        shop.close()
        eventually(lambda: getattr(client.job("items").lag, "records", 1) == 0, BACK_SECONDS_MAX)
    job.must_run_by_itself()
    check_job(job, shop, tally)
