"""The time until a change is readable at a steady rate, exactly once, in both engines.

retally starts an epoch with all available changes as soon as the previous one has ended. Flink has
the nearest equivalent: an exactly-once sink with a checkpoint and a mini-batch of 1 s.
"""

from __future__ import annotations

import time

from bench.frame import Bench, Figure
from bench.generator import Shape
from bench.latency import Latency
from bench.workloads.epoch import wait_until_processed

TITLE = "latency"
# Changes per second, and the bounds of p50 and p99, as shares of Flink's in the same run.
GOALS = {5_000: (0.5, 0.7), 20_000: (0.8, 0.8)}
MINIBATCH = {"size": 1, "max_rows": 100_000}
CHANGES_MAX = 1_000_000
WARM_UP_SECONDS = 20.0
SETTLE_SECONDS = 3.0


def run(bench: Bench) -> None:
    shape = Shape(changes=min(bench.options.changes, CHANGES_MAX))
    ours = _retally(bench, shape) if bench.options.retally else {}
    theirs = _flink(bench, shape) if bench.options.flink else {}
    for rate in ours.keys() & theirs.keys():
        p50, p99 = GOALS[rate]
        _compare(bench, rate, "p50", ours[rate].p50_seconds / theirs[rate].p50_seconds, p50)
        _compare(bench, rate, "p99", ours[rate].p99_seconds / theirs[rate].p99_seconds, p99)


def _retally(bench: Bench, shape: Shape) -> dict[int, Latency]:
    loaded, job, _ = bench.backfill(shape)
    job.minibatch = MINIBATCH
    found = {}
    with job.running():
        bench.send(loaded, min(GOALS), WARM_UP_SECONDS)
        for rate in GOALS:
            wait_until_processed(job.count_processed, loaded)
            with bench.measuring(f"retally: latency at {rate:,} changes/s"):
                found[rate] = bench.probe(loaded, job.sink_topic, rate)
            _add(bench, "retally", rate, found[rate])
        wait_until_processed(job.count_processed, loaded)
    bench.check_retally(job, loaded)
    return found


def _flink(bench: Bench, shape: Shape) -> dict[int, Latency]:
    loaded = bench.load(shape)
    job = bench.make_peer(
        loaded,
        delivery="exactly-once",
        latency="1 s",
        checkpoints="1 s",
    )
    found = {}
    with job.running():
        bench.send(loaded, min(GOALS), WARM_UP_SECONDS)
        for rate in GOALS:
            wait_until_processed(job.count_processed, loaded)
            time.sleep(SETTLE_SECONDS)
            with bench.measuring(f"Flink: latency at {rate:,} changes/s"):
                found[rate] = bench.probe(loaded, job.sink_topic, rate)
            _add(bench, job.engine, rate, found[rate])
        wait_until_processed(job.count_processed, loaded)
        time.sleep(SETTLE_SECONDS)
    bench.check_flink(job, loaded)
    return found


def _add(bench: Bench, engine: str, rate: int, latency: Latency) -> None:
    for what, value in (("p50", latency.p50_seconds), ("p99", latency.p99_seconds)):
        bench.add(Figure(TITLE, engine, f"readable at {rate:,}/s, {what}", value, "s"))


def _compare(bench: Bench, rate: int, what: str, share: float, goal: float) -> None:
    name = f"readable at {rate:,}/s, {what}, of Flink's"
    bench.add(Figure(TITLE, "retally", name, share, "times", f"<= {goal}", share <= goal))
