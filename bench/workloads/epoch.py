"""Small epochs: the time of an epoch of 5,000 changes.

The state is that of the backfill. With a backlog, epochs of exactly 5,000 changes follow each other
without a pause. So the time between two commits is the whole cost of an epoch, with the publisher.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from typing import Protocol

from bench.frame import Bench, Figure
from bench.generator import Changing
from bench.outcome import BenchFailed
from bench.product import Epoch
from bench.topic import fill
from bench.workloads.backfill import shape_of

TITLE = "small epochs"
EPOCH_CHANGES = 5_000
BACKLOG_EPOCHS = 150
# The first epochs after a start include compilation and filling the hot state.
WARM_EPOCHS = 30
EPOCH_SECONDS_MAX = 0.7
READY_SECONDS_MAX = 300


def run(bench: Bench) -> None:
    if not bench.options.retally:
        return
    loaded, job, _ = bench.backfill(shape_of(bench.options))
    job.minibatch = {"size": EPOCH_CHANGES, "latency": "1s", "max_rows": EPOCH_CHANGES}
    before = job.epochs()[-1].epoch
    backlog = loaded.table.changes(BACKLOG_EPOCHS * EPOCH_CHANGES)
    fill(bench.brokers, loaded.topic, enumerate(backlog))
    with bench.measuring("retally: small epochs"), job.running():
        wait_until_processed(job.count_processed, loaded)
        seconds = epoch_seconds([epoch for epoch in job.epochs() if epoch.epoch > before])
    bench.check_retally(job, loaded)
    median = statistics.median(seconds)
    bench.add(
        Figure(
            TITLE,
            "retally",
            "epoch of 5,000, median",
            median,
            "s",
            f"< {EPOCH_SECONDS_MAX}",
            median < EPOCH_SECONDS_MAX,
        )
    )


class Filled(Protocol):
    """One or more topics with all changes of a table."""

    @property
    def table(self) -> Changing: ...


def wait_until_processed(processed: Callable[[], int], loaded: Filled) -> None:
    """Wait for the last change; fail if nothing more is processed for READY_SECONDS_MAX."""
    most, give_up = -1, 0.0
    while (done := processed()) < loaded.table.sequence:
        if done > most:
            most, give_up = done, time.monotonic() + READY_SECONDS_MAX
        if time.monotonic() > give_up:
            raise BenchFailed(f"only {done:,} of {loaded.table.sequence:,} changes were processed")
        time.sleep(0.5)


def epoch_seconds(epochs: list[Epoch]) -> list[float]:
    """Return the times between commits of warm and full epochs."""
    return gap_seconds([epoch for epoch in epochs if epoch.kind == "data"][WARM_EPOCHS:])


def gap_seconds(epochs: list[Epoch]) -> list[float]:
    gaps = []
    for before, epoch in itertools.pairwise(epochs):
        # Partitions share an epoch evenly, so it may have a few changes less.
        if epoch.processed - before.processed >= EPOCH_CHANGES - 4:
            gaps.append((epoch.committed_ms - before.committed_ms) / 1_000)
    if not gaps:
        raise BenchFailed("no two epochs of 5,000 changes followed one another")
    return gaps
