"""Backfills of other streams: uniform keys, one hot key, ten aggregates, wide rows.

The peer is Flink with RocksDB, incremental checkpoints and canal-json, whose topic contains
retractions as retally's topic does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.fold import QUERY
from bench.frame import Bench, Figure, Loaded
from bench.generator import Shape
from bench.product import RetallyJob
from bench.workloads.aggregates import audit

TITLE = "shapes"
MILLION = 1_000_000
WARM_SHARE = 0.25

_TEN = (
    "SELECT name, SUM(cnt) AS total, MAX(cnt) AS top, COUNT(*) AS n, MIN(cnt) AS low, "
    "COUNT(DISTINCT cnt) AS kinds, SUM(DISTINCT cnt) AS of_kinds, "
    "CAST(AVG(cnt) AS DOUBLE) AS mean, CAST(STDDEV_POP(cnt) AS DOUBLE) AS spread, "
    "CAST({half} AS DOUBLE) AS half, CAST({tail} AS DOUBLE) AS tail FROM product GROUP BY name"
)


@dataclass(frozen=True)
class Case:
    """A stream and a query, which may need another spelling for Flink."""

    name: str
    shape: Shape
    query: str = QUERY
    flink_query: str = QUERY
    results: dict[str, str] = field(default_factory=dict)
    times_min: float = 2.5  # of the peer's rate


CASES = (
    Case(
        "uniform keys",
        Shape(changes=6 * MILLION, live_rows=4 * MILLION, groups=5 * MILLION, skew=None),
    ),
    # Of 2 million changes only some seconds would be measured.
    Case("one hot key", Shape(changes=5 * MILLION, hot_share=0.9)),
    Case(
        "ten aggregates",
        Shape(),
        _TEN.format(
            half="PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY cnt)",
            tail="PERCENTILE_CONT(0.95) WITHIN GROUP (ORDER BY cnt)",
        ),
        _TEN.format(half="PERCENTILE(cnt, 0.5)", tail="PERCENTILE(cnt, 0.95)"),
        {
            "low": "INT",
            "kinds": "BIGINT",
            "of_kinds": "INT",
            "mean": "DOUBLE",
            "spread": "DOUBLE",
            "half": "DOUBLE",
            "tail": "DOUBLE",
        },
        times_min=2.0,
    ),
    Case("wide rows", Shape(extra_columns=35)),
)


def run(bench: Bench) -> None:
    for case in CASES:
        loaded = bench.load(case.shape)
        # Skip the same warm-up in both engines.
        warm = int(case.shape.changes * WARM_SHARE)
        theirs = _flink(bench, case, loaded, warm) if bench.options.flink else 0.0
        if not bench.options.retally:
            continue
        ours = _retally(bench, case, loaded, warm)
        if theirs:
            times = ours / theirs
            bench.add(
                Figure(
                    TITLE,
                    "retally",
                    f"{case.name}: against Flink's rate",
                    times,
                    "times",
                    f">= {case.times_min}",
                    times >= case.times_min,
                )
            )


def _retally(bench: Bench, case: Case, loaded: Loaded, warm: int) -> float:
    stem = case.name.replace(" ", "-")
    job = RetallyJob(
        name=stem,
        brokers=bench.brokers,
        topic=loaded.topic,
        directory=bench.directory / stem,
        columns=case.shape.columns,
        overrides={"query": case.query},
    )
    with bench.measuring(f"retally: {case.name}"):
        outcome = job.catch_up()
    bench.check_retally(job, loaded)
    if case.query != QUERY:
        audit(job)
    rate = outcome.rate_after(warm)
    bench.add(Figure(TITLE, "retally", f"{case.name}: rate when warm", rate, "changes/s"))
    bench.add(
        Figure(
            TITLE,
            "retally",
            f"{case.name}: processor time",
            outcome.cpu_seconds / outcome.changes * MILLION,
            "s per million",
        )
    )
    return rate


def _flink(bench: Bench, case: Case, loaded: Loaded, warm: int) -> float:
    job = bench.make_peer(
        loaded,
        state="rocksdb",
        sink="canal-json",
        columns=case.shape.columns,
        query=case.flink_query,
        results=case.results,
    )
    with bench.measuring(f"Flink: {case.name}"):
        outcome = job.catch_up()
    bench.check_flink(job, loaded)
    rate = outcome.rate_after(warm)
    bench.add(Figure(TITLE, job.engine, f"{case.name}: rate when warm", rate, "changes/s"))
    return rate
