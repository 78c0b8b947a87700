"""The cost of event time: backfills with all features of watermarks, and without, in turn.

"With" reads the time of every record, detects idle partitions, and aligns them. "Without" reads no
times and aligns nothing.
"""

from __future__ import annotations

import statistics
from typing import Any

from bench.frame import Bench, Figure
from bench.generator import Shape
from bench.outcome import BenchFailed
from bench.product import RetallyJob

TITLE = "time"
PAIRS = 5
CHANGES_MAX = 1_000_000
EPOCH_CHANGES = 200_000
COST_MAX = 0.05

WITHOUT: dict[str, Any] = {"time": "ingestion"}
WITH: dict[str, Any] = {
    "time": "kafka",
    "delay": "5s",
    "idle_after": "30s",
    "align": {"group": "bench", "max_drift": "1d"},
}


def run(bench: Bench) -> None:
    if not bench.options.retally:
        return
    loaded = bench.load(Shape(changes=min(bench.options.changes, CHANGES_MAX)))

    def rate(name: str, watermark: dict[str, Any]) -> float:
        job = RetallyJob(
            name=name,
            brokers=bench.brokers,
            topic=loaded.topic,
            directory=bench.directory / name,
            minibatch={"size": 5_000, "latency": "1s", "max_rows": EPOCH_CHANGES},
            overrides={"watermark": watermark},
        )
        with bench.measuring(f"retally: {name}"):
            outcome = job.catch_up()
        bench.check_retally(job, loaded)
        if len(outcome.progress) < 2:
            raise BenchFailed(f"{name}: one epoch has no rate")
        return outcome.rate_after(outcome.progress[0].changes)

    ratios = []
    for pair in range(PAIRS):
        turns = [("without", WITHOUT), ("with", WITH)]
        rates = {
            word: rate(f"{word}-time-{pair}", watermark)
            for word, watermark in (turns if pair % 2 else reversed(turns))
        }
        ratios.append(rates["with"] / rates["without"])
    cost = 1 - statistics.median(ratios)
    bench.add(
        Figure(
            TITLE,
            "retally",
            f"share of the rate, median of {PAIRS} pairs",
            cost * 100,
            "%",
            f"< {COST_MAX:.0%}",
            cost < COST_MAX,
        )
    )
