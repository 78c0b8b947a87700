"""How soon a job is back after kill -9: with its cache, and with the cache lost.

A million groups, and changes that wait in the topic; the clock runs from the start of the process
to the commit of the first new epoch. What Spark alone takes to start is told beside it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time

from bench.frame import Bench, Figure, Loaded
from bench.generator import in_motion, one_row_each
from bench.outcome import BenchFailed
from bench.product import RetallyJob
from bench.topic import fill
from bench.workloads.epoch import EPOCH_CHANGES

TITLE = "restart"
GROUPS = 1_000_000
BACK_SECONDS_MAX = {"kept": 12.0, "lost": 20.0}
WAIT_SECONDS_MAX = 120.0
_SPARK_ALONE = (
    "from jobs.edge.spark.session import session\n"
    "spark = session('bench')\n"
    "spark.range(1).mapInArrow(lambda batches: batches, 'id long').collect()\n"
)


def run(bench: Bench) -> None:
    if not bench.options.retally:
        return
    groups = min(GROUPS, bench.options.groups)
    loaded = bench.loaded(one_row_each(groups))
    job = RetallyJob(
        name="restart", brokers=bench.brokers, topic=loaded.topic,
        directory=bench.directory / "restart",
    )  # fmt: skip
    with bench.measuring(f"retally: filling {groups:,} groups"):
        job.catch_up()
    loaded.table.shape = in_motion(groups)
    bench.add(Figure(TITLE, "Spark", "its own start, first Python task included", _spark(), "s"))
    for cache, goal in BACK_SECONDS_MAX.items():
        seconds = _back(bench, loaded, job, lost=cache == "lost")
        bench.add(
            Figure(TITLE, "retally", f"cache {cache}: to the first new epoch", seconds, "s",
                   f"< {goal:.0f}", seconds < goal)
        )  # fmt: skip
    if job.taken() < loaded.table.sequence:
        job.catch_up()
    bench.check_retally(job, loaded)


def _spark() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", _SPARK_ALONE], check=True, capture_output=True)
    return time.monotonic() - began


def _back(bench: Bench, loaded: Loaded, job: RetallyJob, *, lost: bool) -> float:
    """Kill a job in the middle of its work, and start it again."""
    with job.killed():
        _feed(bench, loaded)
        _until_past(job, job.taken())
        _feed(bench, loaded)
    if lost:
        shutil.rmtree(job.cache)
    before = job.taken()
    _feed(bench, loaded)
    with bench.measuring(f"retally: started again, its cache {'lost' if lost else 'kept'}"):
        began = time.time()
        with job.running():
            _until_past(job, before)
            first = next(epoch for epoch in job.epochs() if epoch.taken > before)
    return first.committed_ms / 1_000 - began


def _feed(bench: Bench, loaded: Loaded) -> None:
    fill(bench.brokers, loaded.topic, enumerate(loaded.table.changes(EPOCH_CHANGES)))


def _until_past(job: RetallyJob, taken: int) -> None:
    give_up = time.monotonic() + WAIT_SECONDS_MAX
    while job.taken() <= taken:
        if time.monotonic() > give_up:
            raise BenchFailed(f"no new epoch within {WAIT_SECONDS_MAX:.0f} s of a start")
        time.sleep(0.2)
