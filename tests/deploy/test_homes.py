"""Three executors, each with a hot state of its own: buckets stay at home, also after one leaves.

a worker is killed          its executor dies with it, in the middle of a task
a worker is decommissioned  it gets no more tasks, ends those that it has, and its executor ends
"""

from __future__ import annotations

import random
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pyarrow as pa
import pytest

from jobs.core.values.change import Op
from jobs.edge.process.broker import Broker
from schemas.table.epoch import EpochRow
from tests.deploy.containers import SPARK_SECRET, Container, Stack
from tests.support.command.shop import COLUMN_TYPES, Shop
from tests.support.faults.tally import FaultTally
from tests.support.histories.folded_changelog import fold_changelog
from tests.support.jobs.published_records import key_of, must_be_in_order, place
from tests.support.jobs.running_job import RUN_SECONDS_MAX, RunningJob, consumed
from tests.support.service.served import eventually

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.timeout(800),
    pytest.mark.costly("a cluster of three executors, one of which leaves"),
    pytest.mark.skipif(sys.platform != "linux", reason="each container is an address of 127/8"),
]
QUERY = "SELECT cnt, COUNT(*) AS n, MAX(id) AS top, SUM(id) AS ids FROM product GROUP BY cnt"
EPOCH_ROWS, EPOCHS = 9_000, 14  # more than one fold task would take
SETTLED = 4  # epochs in which executors join
# An epoch in which an executor leaves, and those in which its buckets catch up elsewhere.
MOVING = 3
DEPARTURES = 6
FEEDING_SECONDS = 2  # between feeds, so that there is an epoch after every departure
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
PYTHON_DAEMON = "jobs.edge.spark.python_daemon"
DECOMMISSION = "spark.decommission.enabled=true"  # of workers, and of the job
TASKS = ("tasks_placed", "tasks_at_home")


class Cluster:
    """Three executors of a core each, and a job over a shop's topic."""

    def __init__(self, broker: Broker, home: Path) -> None:
        settings = {"WORKERS": "3", "WORKER_CORES": "1", "JOB_CORES": "3"}
        further = {"SPARK_WORKER_OPTS": f"-D{DECOMMISSION}"}
        self.stack = Stack(home, broker.address, further=further, settings=settings)
        self.shop = Shop(broker.address, f"homes-{uuid.uuid4().hex[:8]}", seed=3)
        self._home = home

    def make_job(self, **further: Any) -> RunningJob:
        spec: dict[str, Any] = {
            "name": "homes",
            "source": {"topic": self.shop.topic},
            "columns": COLUMN_TYPES,
            "query": QUERY,
            "minibatch": {"size": 1, "max_rows": EPOCH_ROWS},
            "sink": {"topic": f"{self.shop.topic}-changes"},
        }
        master = f"spark://{self.stack.containers['spark-master'].address}:7077"
        return RunningJob(spec | further, self._home, self.stack.brokers, ("--master", master))


@pytest.fixture
def cluster(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    found = Cluster(broker, tmp_path)
    try:
        found.stack.up(service=False)
        monkeypatch.setenv("RETALLY_SPARK_SECRET", SPARK_SECRET)
        monkeypatch.setenv("SPARK_LOCAL_IP", found.stack.containers["service"].address)
        monkeypatch.setenv("SPARK_EXECUTOR_MEMORY", "768m")
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--conf {DECOMMISSION} pyspark-shell")
        yield found
    finally:
        found.stack.down()
        found.shop.close()


def runs(process: psutil.Process, name: str) -> bool:
    with suppress(psutil.NoSuchProcess):  # spark-class leaves a zombie, and starts a launcher first
        return name in process.cmdline()
    return False


def has_worked(worker: Container) -> bool:
    """Return whether the executor of a worker has run a task, so that the driver knows it."""
    assert worker.process is not None
    below = psutil.Process(worker.process.pid).children(recursive=True)
    return any(runs(each, PYTHON_DAEMON) for each in below)


def decommission(worker: Container) -> None:
    """Let a worker leave as Spark's decommission-worker.sh does; wait until its executor ended."""
    assert worker.process is not None
    of_worker = psutil.Process(worker.process.pid)
    executors = eventually(
        lambda: [each for each in of_worker.children() if runs(each, EXECUTOR)], RUN_SECONDS_MAX
    )
    worker.process.send_signal(signal.SIGPWR)
    _, alive = psutil.wait_procs(executors, RUN_SECONDS_MAX)
    assert not alive


@pytest.mark.slow
@pytest.mark.parametrize(
    "leave",
    [
        pytest.param(Container.kill, id="dies"),
        pytest.param(decommission, id="is decommissioned", marks=pytest.mark.faults),
    ],
)
def test_buckets_stay_at_home_and_move_once_if_an_executor_leaves(
    cluster: Cluster, leave: Callable[[Container], None]
) -> None:
    cluster.shop.feed(EPOCH_ROWS * EPOCHS)
    job = cluster.make_job()
    process = job.start()
    left = eventually(lambda: (found := newest(job)) >= EPOCHS // 2 and found, RUN_SECONDS_MAX)
    leave(cluster.stack.workers[1])
    output, _ = process.communicate(timeout=RUN_SECONDS_MAX)
    assert process.returncode == 0, output
    must_be_exact(job, cluster.shop)

    epochs = [row for row in job.epochs() if row.kind == "data"]
    for row in epochs:
        print(row.epoch, _work(row))
    before = [row for row in epochs if SETTLED < row.epoch <= left]
    after = [row for row in epochs if row.epoch > left + MOVING]
    assert before and after
    for some, executors in ((before, 3), (after, 2)):
        placed, at_home, folded, caught_up = (
            sum(each) for each in zip(*map(_work, some), strict=True)
        )
        assert placed == executors * len(some)
        assert at_home >= 0.9 * placed
        assert caught_up <= 0.05 * folded
    moved = sum(row.counts.rows_caught_up for row in epochs if left < row.epoch <= left + MOVING)
    assert moved > 0, "nobody had the state of the buckets of the executor that left"


@pytest.mark.faults
def test_executors_that_leave_and_come_back_lose_and_repeat_nothing(cluster: Cluster) -> None:
    """Deduplication and the fold have homes, and both move."""
    tally = FaultTally("three executors: in turn one is killed or decommissioned, and returns")
    bundle = {"size": EPOCH_ROWS, "latency": "20s", "max_rows": EPOCH_ROWS}
    job = cluster.make_job(primary_key=["id"], dedupe="pk", minibatch=bundle)
    process, dice = job.start(caught_up=False), random.Random(3)
    with cluster.shop.feeding(EPOCH_ROWS, FEEDING_SECONDS):
        for departure in range(DEPARTURES):
            eventually(lambda: all(map(has_worked, cluster.stack.workers)), RUN_SECONDS_MAX)
            worker = dice.choice(cluster.stack.workers)
            leave = (Container.kill, decommission)[departure % 2]
            tally.plan(leave.__name__)
            began, seen = time.monotonic(), newest(job)
            leave(worker)
            eventually(lambda: newest(job) > seen, RUN_SECONDS_MAX)  # noqa: B023
            tally.recoveries.append(time.monotonic() - began)
            tally.fire(leave.__name__)
            gone_for = newest(job) + dice.randrange(3)
            eventually(lambda: newest(job) >= gone_for, RUN_SECONDS_MAX)  # noqa: B023
            worker.kill()  # a decommissioned one has ended its executor and not itself
            worker.start()
    process.terminate()
    output, _ = process.communicate(timeout=RUN_SECONDS_MAX)
    assert process.returncode == 0, output
    job.must_run_by_itself()
    tally.inputs = sum(row.counts.read for row in job.epochs())
    tally.outputs = must_be_exact(job, cluster.shop)
    counts = [row.counts for row in job.epochs()]
    placed, at_home = (sum(getattr(each, name) for each in counts) for name in TASKS)
    tally.further = {"tasks_placed": placed, "tasks_at_home": at_home}
    tally.close()
    assert at_home >= 0.5 * placed > 0


def _work(row: EpochRow) -> tuple[int, int, int, int]:
    counts = row.counts
    return counts.tasks_placed, counts.tasks_at_home, counts.rows_folded, counts.rows_caught_up


def newest(job: RunningJob) -> int:
    """Return the newest epoch; 0 before there is one."""
    exists = (job.table / "_delta_log").exists()
    return max((row.epoch for row in job.epochs()), default=0) if exists else 0


def must_be_exact(job: RunningJob, shop: Shop) -> int:
    """The results are DuckDB's, and the changelog leads to them; return the number of records."""
    records = consumed(job.brokers, job.spec["sink"]["topic"])
    must_be_in_order(records)
    published = sorted((record["value"] for record in records), key=place)
    assert len({place(change) for change in published}) == len(published), "a row came twice"
    folded = fold_changelog(
        {},
        [
            (Op(change["op"]), key_of(job.plan, change["row"]), change["row"])
            for change in published
        ],
    )
    results = {key_of(job.plan, row): row for row in job.ask("results", "homes")}
    assert folded == results
    columns = zip(*((number, cnt) for number, (_, cnt) in shop.rows.items()), strict=True)
    with duckdb.connect() as database:
        database.register("product", pa.table(list(columns), names=["id", "cnt"]))
        truth = database.execute(QUERY).fetchall()
    found = [tuple(row[name] for name in ("cnt", "n", "top", "ids")) for row in results.values()]
    assert sorted(map(repr, found)) == sorted(map(repr, truth))
    return len(published)
