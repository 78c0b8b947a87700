"""The time of a restart after kill -9, with and without the job's cache.

There are a million groups, and changes wait in the topic. The time is measured from the start of
the process to the commit of the first new epoch. The start of Spark alone is a separate figure.
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
BACK_SECONDS_MAX = {"kept": 9.0, "lost": 20.0}
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
    loaded = bench.load(one_row_each(groups))
    job = RetallyJob(
        name="restart",
        brokers=bench.brokers,
        topic=loaded.topic,
        directory=bench.directory / "restart",
    )
    with bench.measuring(f"retally: filling {groups:,} groups"):
        job.catch_up()
    loaded.table.shape = in_motion(groups)
    bench.add(Figure(TITLE, "Spark", "its own start, first Python task included", _spark(), "s"))
    for cache, goal in BACK_SECONDS_MAX.items():
        seconds = _back(bench, loaded, job, lost=cache == "lost")
        bench.add(
            Figure(
                TITLE,
                "retally",
                f"cache {cache}: to the first new epoch",
                seconds,
                "s",
                f"< {goal:.0f}",
                seconds < goal,
            )
        )
    if job.count_processed() < loaded.table.sequence:
        job.catch_up()
    bench.check_retally(job, loaded)


def _spark() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", _SPARK_ALONE], check=True, capture_output=True)
    return time.monotonic() - began


def _back(bench: Bench, loaded: Loaded, job: RetallyJob, *, lost: bool) -> float:
    """Kill a job in the middle of its work, start it again, and return its restart time."""
    with job.run_until_killed():
        _feed(bench, loaded)
        _until_past(job, job.count_processed())
        _feed(bench, loaded)
    if lost:
        shutil.rmtree(job.cache)
    before = job.count_processed()
    _feed(bench, loaded)
    with bench.measuring(f"retally: started again, its cache {'lost' if lost else 'kept'}"):
        began = time.time()
        with job.running():
            _until_past(job, before)
            first = next(epoch for epoch in job.epochs() if epoch.processed > before)
    return first.committed_ms / 1_000 - began


def _feed(bench: Bench, loaded: Loaded) -> None:
    fill(bench.brokers, loaded.topic, enumerate(loaded.table.changes(EPOCH_CHANGES)))


def _until_past(job: RetallyJob, processed: int) -> None:
    give_up = time.monotonic() + WAIT_SECONDS_MAX
    while job.count_processed() <= processed:
        if time.monotonic() > give_up:
            raise BenchFailed(f"no new epoch within {WAIT_SECONDS_MAX:.0f} s after a start")
        time.sleep(0.2)
