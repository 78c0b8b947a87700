"""What the mirror costs a job at a steady rate: with and without one, in turn.

The job is the same, over the same groups; its spec says `mirror: off`, then nothing, then `off`
again. The time with a mirror begins when the first refresh has made its table, and is that of both
times without it, so that it has refreshes and the rests after them.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from deltalake import DeltaTable

from bench.frame import Bench, Figure, Loaded
from bench.generator import Shape
from bench.latency import Latency, probe_latency
from bench.process_tree import sampled_footprint
from bench.product import RetallyJob
from bench.workloads.epoch import wait_until_processed
from schemas.directory.paths import JobDirectory

TITLE = "mirror"
RATE = 5_000
CHANGES_MAX = 1_000_000  # up to 180,000 groups
MINIBATCH = {"size": 1, "max_rows": 100_000}
WARM_UP_SECONDS = 20.0
P99_TIMES_MAX, CPU_SHARE_MAX = 1.1, 0.05


@dataclass(frozen=True, slots=True)
class _Cost:
    latency: Latency
    cpu_seconds: float  # in a second of the clock
    refreshes: int


def run(bench: Bench) -> None:
    if not bench.options.retally:
        return
    loaded, job, _ = bench.backfill(Shape(changes=min(bench.options.changes, CHANGES_MAX)))
    job.minibatch = MINIBATCH
    half, whole = bench.options.seconds, 2 * bench.options.seconds
    before = _measure(bench, loaded, job, half, mirrored=False)
    mirrored = _measure(bench, loaded, job, whole, mirrored=True)
    after = _measure(bench, loaded, job, half, mirrored=False)
    bench.check_retally(job, loaded)
    p99 = statistics.mean(each.latency.p99_seconds for each in (before, after))
    cpu = statistics.mean(each.cpu_seconds for each in (before, after))
    _add(bench, "refreshes", mirrored.refreshes, "")
    for what, each in (("off, before", before), ("on", mirrored), ("off, after", after)):
        _add(bench, f"{what}: readable at {RATE:,}/s, p50", each.latency.p50_seconds, "s")
        _add(bench, f"{what}: readable at {RATE:,}/s, p99", each.latency.p99_seconds, "s")
        _add(bench, f"{what}: processor time", each.cpu_seconds, "s/s")
    _add(bench, "p99, of that without", mirrored.latency.p99_seconds / p99, "times", P99_TIMES_MAX)
    share = (mirrored.cpu_seconds - cpu) / mirrored.cpu_seconds
    _add(bench, "share of the processor time", share, "", CPU_SHARE_MAX)


def _measure(
    bench: Bench, loaded: Loaded, job: RetallyJob, seconds: float, *, mirrored: bool
) -> _Cost:
    job.overrides = {} if mirrored else {"mirror": "off"}
    results = str(JobDirectory(job.directory, job.name).results)
    with job.running() as process:
        bench.send(loaded, RATE, WARM_UP_SECONDS)
        while mirrored and not DeltaTable.is_deltatable(results):
            bench.send(loaded, RATE, 1.0)
        wait_until_processed(job.count_processed, loaded)
        before = DeltaTable(results).version() if mirrored else 0
        with (
            bench.measuring(f"retally: mirror {'on' if mirrored else 'off'}"),
            sampled_footprint(process.pid) as footprint,
        ):
            began = time.monotonic()
            latency = probe_latency(
                bench.brokers,
                loaded.topic,
                job.sink_topic,
                loaded.table,
                rate=RATE,
                seconds=seconds,
            )
            took = time.monotonic() - began
        refreshes = DeltaTable(results).version() - before if mirrored else 0
        wait_until_processed(job.count_processed, loaded)
    return _Cost(latency, footprint.cpu_seconds / took, refreshes)


def _add(bench: Bench, what: str, value: float, unit: str, most: float | None = None) -> None:
    bound, holds = ("", None) if most is None else (f"<= {most}", value <= most)
    bench.add(Figure(TITLE, "retally", what, value, unit, bound, holds))
