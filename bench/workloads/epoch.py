"""Small epochs: what an epoch of 5,000 changes costs, and how soon a change is readable.

The state is that of the backfill. A backlog makes epochs of exactly 5,000 changes follow one
another without a pause, so the time between two commits is the whole cost of an epoch, publisher
running; a steady stream at 5,000 changes/s then gives the latency.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable

from bench.flink.peer import FlinkJob
from bench.frame import Bench, Figure, Loaded
from bench.generator import Shape
from bench.latency import Latency, probe_latency
from bench.outcome import BenchFailed
from bench.product import Epoch
from bench.topic import fill

TITLE = "small epochs"
EPOCH_CHANGES = 5_000
BACKLOG_EPOCHS = 60
# The first ones after a start pay for compiling and for filling the hot state.
WARM_EPOCHS = 10
EPOCH_SECONDS_MAX = 0.7
RATE = 5_000
READY_SECONDS_MAX = 300
SETTLE_SECONDS = 3


def run(bench: Bench) -> None:
    shape = Shape(changes=bench.options.changes)
    if bench.options.retally:
        run_retally(bench, shape)
    if bench.options.flink:
        run_flink(bench, shape)


def run_retally(bench: Bench, shape: Shape) -> None:
    loaded, job, _ = bench.backfilled(shape)
    job.minibatch = {"size": EPOCH_CHANGES, "latency": "1s", "max_rows": EPOCH_CHANGES}
    before = job.epochs()[-1].epoch
    backlog = loaded.table.changes(BACKLOG_EPOCHS * EPOCH_CHANGES)
    fill(bench.brokers, loaded.topic, enumerate(backlog))
    with bench.measuring("retally: small epochs"), job.running():
        wait_until_taken(job.taken, loaded)
        seconds = epoch_seconds([epoch for epoch in job.epochs() if epoch.epoch > before])
        latency = steady_latency(bench, loaded, job.sink_topic)
        wait_until_taken(job.taken, loaded)
    bench.check_retally(job, loaded)
    median = statistics.median(seconds)
    bound = f"< {EPOCH_SECONDS_MAX}"
    bench.add(
        Figure(TITLE, "retally", "epoch of 5,000, median", median, "s", bound,
               median < EPOCH_SECONDS_MAX)
    )  # fmt: skip
    add_latency(bench, "retally", latency)


def run_flink(bench: Bench, shape: Shape) -> None:
    """The nearest to the same promise: exactly-once sink, checkpoints and mini-batch of 1 s."""
    loaded = bench.loaded(shape)
    sink_topic = bench.new_topic("flink")
    job = FlinkJob(
        bench.brokers,
        loaded.topic,
        sink_topic,
        bench.out,
        bench.directory / sink_topic,
        delivery="exactly-once",
        latency="1 s",
        checkpoints="1 s",
    )
    with bench.measuring("Flink: latency at a steady rate"), job.running():
        wait_until_taken(job.taken, loaded)
        time.sleep(SETTLE_SECONDS)
        latency = steady_latency(bench, loaded, sink_topic)
        wait_until_taken(job.taken, loaded)
        time.sleep(SETTLE_SECONDS)
    bench.check_flink(sink_topic, loaded)
    add_latency(bench, "Flink hashmap", latency)


def wait_until_taken(taken: Callable[[], int], loaded: Loaded) -> None:
    give_up = time.monotonic() + READY_SECONDS_MAX
    while (done := taken()) < loaded.table.sequence:
        if time.monotonic() > give_up:
            raise BenchFailed(f"only {done:,} of {loaded.table.sequence:,} changes were taken")
        time.sleep(0.5)


def epoch_seconds(epochs: list[Epoch]) -> list[float]:
    """Time from commit to commit where an epoch took just as many changes as it may."""
    data = [epoch for epoch in epochs if epoch.kind == "data"]
    gaps = []
    for before, epoch in itertools.pairwise(data[WARM_EPOCHS:]):
        if epoch.taken - before.taken >= EPOCH_CHANGES - 4:  # partitions share it out evenly
            gaps.append((epoch.committed_ms - before.committed_ms) / 1_000)
    if not gaps:
        raise BenchFailed("no two epochs of 5,000 changes followed one another")
    return gaps


def steady_latency(bench: Bench, loaded: Loaded, sink_topic: str) -> Latency:
    return probe_latency(
        bench.brokers,
        loaded.topic,
        sink_topic,
        loaded.table,
        rate=RATE,
        seconds=bench.options.seconds,
    )


def add_latency(bench: Bench, engine: str, latency: Latency) -> None:
    what = "change to readable at 5,000/s"
    bench.add(Figure(TITLE, engine, f"{what}, p50", latency.p50_seconds, "s"))
    bench.add(Figure(TITLE, engine, f"{what}, p99", latency.p99_seconds, "s"))
