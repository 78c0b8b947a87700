"""What ordinary queries cost, of what the plainest one costs in the same run.

    one topic ──┬─► plain, WHERE, dedupe: pk      the time until a change is readable, in turn
                ├─► plain, nine expressions, TUMBLE   epochs of 5,000 changes
                └─► dedupe: pk, and Flink's ChangelogNormalize   backfill

The condition is true for all rows, so that the results are those of the plain query; an audit
checks queries with others.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field, replace
from typing import Any

from bench.flink.peer import Sink, State
from bench.fold import QUERY
from bench.frame import Bench, Figure, Loaded
from bench.generator import Shape
from bench.outcome import BenchFailed
from bench.product import MINIBATCH, RetallyJob, published_ms
from bench.topic import fill
from bench.workloads.aggregates import audit
from bench.workloads.backfill import WARM_SHARE
from bench.workloads.epoch import EPOCH_CHANGES, WARM_EPOCHS, epoch_seconds, wait_until_processed

TITLE = "queries"
SHAPE = Shape(changes=1_000_000, live_rows=300_000, groups=100_000, timed=True)
RATE = 5_000  # changes per second, for the latency
LATENCY_MINIBATCH = {"size": 1, "max_rows": 100_000}
WARM_UP_SECONDS = 20.0
BACKLOG_EPOCHS = WARM_EPOCHS + 60

_NINE = (  # over the same aggregates, whose fold would cost more than the expressions
    "SELECT UPPER(name) AS name, SUM(CASE WHEN cnt > 500 THEN cnt * 2 ELSE cnt + 1 END) AS total, "
    "MAX(MOD(cnt * 3, 1000)) AS top, COUNT(*) AS n FROM product "
    "WHERE CHAR_LENGTH(description) > 3 AND SUBSTRING(description, 1, 5) = 'batch' "
    "AND price * cnt >= 0 GROUP BY UPPER(name)"
)
_TUMBLE = (
    "SELECT name, window_start, SUM(cnt) AS total, MAX(cnt) AS top, COUNT(*) AS n "
    "FROM product GROUP BY name, TUMBLE(at, INTERVAL '5' MINUTE)"
)


@dataclass(frozen=True)
class Case:
    name: str
    overrides: dict[str, Any] = field(default_factory=dict)
    bounds: tuple[float, float] = (0.0, 0.0)  # of p50 and p99, or of the time of an epoch

    @property
    def has_other_results(self) -> bool:
        return self.overrides.get("query", QUERY) not in (QUERY, _WHERE)


_WHERE = QUERY.replace("GROUP BY", "WHERE description LIKE 'batch%' AND price >= 0 GROUP BY")
_DEDUPE = {"primary_key": ["id"], "dedupe": "pk"}
PLAIN = Case("plain")
LATENCIES = (
    PLAIN,
    Case("WHERE", {"query": _WHERE}, (1.15, 1.15)),
    Case("dedupe", _DEDUPE, (1.4, 1.4)),
)
EPOCHS = (
    PLAIN,
    Case("nine expressions", {"query": _NINE}, (1.5, 1.5)),
    Case(
        "TUMBLE",
        {"query": _TUMBLE, "watermark": {"time": {"column": "at"}, "delay": "1d"}},
        (1.3, 1.3),
    ),
)
PEERS: tuple[tuple[State, Sink, float], ...] = (
    ("hashmap", "upsert-kafka", 2.5),
    ("rocksdb", "canal-json", 5.0),
)


def run(bench: Bench) -> None:
    if bench.options.retally:
        _latencies(bench)
        _epochs(bench)
    _backfills(bench)


def _job(bench: Bench, loaded: Loaded, case: Case, purpose: str) -> RetallyJob:
    name = f"{purpose}-{case.name.replace(' ', '-').lower()}"
    return RetallyJob(
        name=name,
        brokers=bench.brokers,
        topic=loaded.topic,
        directory=bench.directory / name,
        columns=SHAPE.columns,
        overrides={"mirror": "off", **case.overrides},
        published_ms=None if case.has_other_results else published_ms,
    )


def _latencies(bench: Bench) -> None:
    loaded = bench.load(SHAPE)
    plain = (0.0, 0.0)
    for case in LATENCIES:
        job = _job(bench, loaded, case, "latency")
        job.catch_up()
        job.minibatch = LATENCY_MINIBATCH
        with job.running():
            bench.send(loaded, RATE, WARM_UP_SECONDS)
            wait_until_processed(job.count_processed, loaded)
            with bench.measuring(f"retally: latency of {case.name}"):
                found = bench.probe(loaded, job.sink_topic, RATE)
            wait_until_processed(job.count_processed, loaded)
        bench.check_retally(job, loaded)
        measured = (found.p50_seconds, found.p99_seconds)
        for what, value in zip(("p50", "p99"), measured, strict=True):
            _add(bench, f"{case.name}: readable at {RATE:,}/s, {what}", value, "s")
        if case is PLAIN:
            plain = measured
            continue
        for what, ours, theirs, most in zip(
            ("p50", "p99"), measured, plain, case.bounds, strict=True
        ):
            _bound(bench, f"{case.name}: {what}, of that of plain", ours / theirs, most)


def _epochs(bench: Bench) -> None:
    plain = 0.0
    for case in EPOCHS:
        loaded = bench.load(SHAPE)
        job = _job(bench, loaded, case, "epochs")
        job.catch_up()
        job.minibatch = {"size": EPOCH_CHANGES, "latency": "1s", "max_rows": EPOCH_CHANGES}
        before = job.epochs()[-1].epoch
        changes = loaded.table.changes(BACKLOG_EPOCHS * EPOCH_CHANGES)
        fill(bench.brokers, loaded.topic, enumerate(changes))
        with bench.measuring(f"retally: small epochs of {case.name}"), job.running():
            wait_until_processed(job.count_processed, loaded)
            seconds = epoch_seconds([epoch for epoch in job.epochs() if epoch.epoch > before])
        if case.has_other_results:
            audit(job)
        else:
            bench.check_retally(job, loaded)
        median = statistics.median(seconds)
        _add(bench, f"{case.name}: epoch of {EPOCH_CHANGES:,}, median", median, "s")
        if case is PLAIN:
            plain = median
        else:
            name = f"{case.name}: epoch of {EPOCH_CHANGES:,}, of that of plain"
            _bound(bench, name, median / plain, case.bounds[0])


def _backfills(bench: Bench) -> None:
    """Compare `dedupe: pk` with Flink, which normalizes the changes by the primary key."""
    shape = replace(SHAPE, changes=min(bench.options.changes, 3 * SHAPE.changes), timed=False)
    loaded = bench.load(shape)
    warm = int(shape.changes * WARM_SHARE)
    theirs = {}
    if bench.options.flink:
        theirs = {state: _flink(bench, loaded, state, sink, warm) for state, sink, _ in PEERS}
    if not bench.options.retally:
        return
    job = _job(bench, loaded, LATENCIES[-1], "backfill")
    job.columns = shape.columns
    job.minibatch = dict(MINIBATCH)
    with bench.measuring("retally: backfill with dedupe"):
        outcome = job.catch_up()
    bench.check_retally(job, loaded)
    if len(outcome.progress) < 2:
        raise BenchFailed("one epoch has no rate")
    rate = outcome.rate_after(warm)
    _add(bench, "backfill with dedupe: rate when warm", rate, "changes/s")
    for state, _, least in PEERS:
        if state in theirs:
            times = rate / theirs[state]
            what = f"backfill with dedupe, of Flink's rate ({state})"
            figure = Figure(TITLE, "retally", what, times, "times", f">= {least}", times >= least)
            bench.add(figure)


def _flink(bench: Bench, loaded: Loaded, state: State, sink: Sink, warm: int) -> float:
    job = bench.make_peer(
        loaded,
        state=state,
        sink=sink,
        normalized=True,
    )
    with bench.measuring(f"Flink {state}: backfill, normalized"):
        outcome = job.catch_up()
    bench.check_flink(job, loaded)
    rate = outcome.rate_after(warm)
    bench.add(Figure(TITLE, job.engine, "backfill, normalized: rate when warm", rate, "changes/s"))
    return rate


def _add(bench: Bench, what: str, value: float, unit: str) -> None:
    bench.add(Figure(TITLE, "retally", what, value, unit))


def _bound(bench: Bench, what: str, times: float, most: float) -> None:
    bench.add(Figure(TITLE, "retally", what, times, "times", f"<= {most}", times <= most))
