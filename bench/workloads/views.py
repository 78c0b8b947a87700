"""Several queries over one topic: a job with views, as many jobs, and Flink's statement set.

    topic ──┬─► a job with 1, 3 or 10 views      one decoding, one commit
            ├─► as many jobs with one query      one after the other; their sums
            └─► Flink, one statement set         one source, as many sinks

The first view is the query of the other workloads, so that its results and the probes of the
latency are checked as there; an audit checks the other views.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from bench.flink.statement_set import FlinkStatementSet, ViewQuery
from bench.fold import QUERY
from bench.frame import MIB, Bench, Figure, Loaded
from bench.generator import Shape
from bench.latency import Latency
from bench.outcome import Outcome
from bench.product import RetallyJob
from bench.topic import create_topic
from bench.workloads.aggregates import audit
from bench.workloads.epoch import wait_until_processed

TITLE = "views"
COUNTS = (1, 3, 10)
CHANGES_MAX = 2_000_000
WARM_SHARE = 0.25
RATE = 5_000  # changes per second, for the latency
WARM_UP_SECONDS = 20.0
SETTLE_SECONDS = 3.0
LATENCY_MINIBATCH = {"size": 1, "max_rows": 100_000}
# Ten views, as multiples of one view.
CPU_TIMES_MAX, MEMORY_TIMES_MAX = 3.0, 1.5
MILLION = 1_000_000

_COUNT, _DECIMAL, _SUM = "BIGINT", "DECIMAL(10, 2)", "DECIMAL(38, 2)"


def _view(number: int, key: str, **results: tuple[str, str]) -> ViewQuery:
    """Return a query by `key`; `results` have an aggregate and a type, and `number` in the name."""
    named = {f"{name}_{number}": each for name, each in results.items()}
    calls = ", ".join(f"{call} AS {name}" for name, (call, _) in named.items())
    columns = {key: {"name": "STRING", "cnt": "INT"}[key]}
    columns |= {name: kind for name, (_, kind) in named.items()}
    return ViewQuery(f"SELECT {key}, {calls} FROM product GROUP BY {key}", key, columns)


VIEWS = {
    "view-1": ViewQuery(
        QUERY, "name", {"name": "STRING", "total": "BIGINT", "top": "INT", "n": "BIGINT"}
    ),
    "view-2": _view(2, "name", low=("MIN(cnt)", "INT"), n=("COUNT(cnt)", _COUNT)),
    "view-3": _view(3, "cnt", n=("COUNT(*)", _COUNT), top=("MAX(price)", _DECIMAL)),
    "view-4": _view(4, "name", worth=("SUM(price)", _SUM), n=("COUNT(*)", _COUNT)),
    "view-5": _view(5, "name", top=("MAX(price)", _DECIMAL), low=("MIN(price)", _DECIMAL)),
    "view-6": _view(6, "cnt", worth=("SUM(price)", _SUM)),
    "view-7": _view(7, "name", n=("COUNT(*)", _COUNT), last=("MAX(id)", "BIGINT")),
    "view-8": _view(8, "cnt", first=("MIN(id)", "BIGINT"), n=("COUNT(*)", _COUNT)),
    "view-9": _view(9, "name", n=("COUNT(price)", _COUNT), low=("MIN(price)", _DECIMAL)),
    "view-10": _view(10, "cnt", last=("MAX(name)", "STRING"), n=("COUNT(*)", _COUNT)),
}


@dataclass(slots=True)
class _Cost:
    """What one way to compute some views has cost."""

    cpu_seconds: float  # of the whole run
    memory_bytes: int
    seconds: float
    warm_cpu_seconds: float = 0.0  # of a change, after the warm-up; 0 if unknown
    latency: Latency | None = None


@dataclass(slots=True)
class _Costs:
    """The costs of each way, by the number of views."""

    views: dict[int, _Cost] = field(default_factory=dict)
    jobs: dict[int, _Cost] = field(default_factory=dict)
    flink: dict[int, _Cost] = field(default_factory=dict)


def run(bench: Bench) -> None:
    shape = Shape(changes=min(bench.options.changes, CHANGES_MAX))
    costs = _Costs()
    if bench.options.retally:
        loaded = bench.load(shape)
        jobs = {count: _make_job(bench, loaded, count) for count in COUNTS}
        for count, job in jobs.items():
            costs.views[count] = _catch_up(bench, loaded, job, f"{count} views")
        costs.jobs = _run_alone(bench, loaded)
        for count, job in jobs.items():
            costs.views[count].latency = _retally_latency(bench, loaded, job, count)
        for count in COUNTS:
            _add(bench, "retally", count, costs.views[count], shape.changes)
            _add(bench, "retally, as many jobs", count, costs.jobs[count], shape.changes)
        _compare_views(bench, costs)
    if bench.options.flink:
        for count in COUNTS:
            costs.flink[count] = _run_flink(bench, shape, count)
            _add(bench, "Flink, statement set", count, costs.flink[count], shape.changes)
    _compare_others(bench, costs)


# --- retally --------------------------------------------------------------------------------------


def _make_job(bench: Bench, loaded: Loaded, count: int) -> RetallyJob:
    job = RetallyJob(
        name=f"views-{count}",
        brokers=bench.brokers,
        topic=loaded.topic,
        directory=bench.directory / f"views-{count}",
    )
    job.overrides = {"query": None, "sink": None, "views": _write_views(job, count)}
    return job


def _write_views(job: RetallyJob, count: int) -> dict[str, Any]:
    """Return the section `views` of a spec; the first view has the topic that is checked."""
    return {
        name: {"query": view.query, "sink": _sink(job.sink_topic, name)}
        for name, view in islice(VIEWS.items(), count)
    }


def _sink(topic: str, view: str) -> dict[str, Any]:
    own = topic if view == "view-1" else f"{topic}-{view}"
    return {"topic": own, "partitions": 4, "delivery": "exactly_once"}


def _catch_up(bench: Bench, loaded: Loaded, job: RetallyJob, what: str) -> _Cost:
    with bench.measuring(f"retally: {what}"):
        outcome = job.catch_up()
    if job.published_ms is not None:
        bench.check_retally(job, loaded)
    audit(job)
    cost = _cost_of(outcome)
    cost.warm_cpu_seconds = outcome.cpu_seconds_after(int(outcome.changes * WARM_SHARE))
    return cost


def _run_alone(bench: Bench, loaded: Loaded) -> dict[int, _Cost]:
    """Run each view as a job of its own; return the sums over the first jobs."""
    sums: dict[int, _Cost] = {}
    total = _Cost(0.0, 0, 0.0)
    for number, (name, view) in enumerate(VIEWS.items(), 1):
        job = RetallyJob(
            name=f"alone-{name}",
            brokers=bench.brokers,
            topic=loaded.topic,
            directory=bench.directory / f"alone-{name}",
        )
        job.overrides = {"query": view.query, "sink": _sink(job.sink_topic, name)}
        if name != "view-1":
            job.published_ms = None
        cost = _catch_up(bench, loaded, job, f"{name} in a job of its own")
        total = _Cost(
            total.cpu_seconds + cost.cpu_seconds,
            total.memory_bytes + cost.memory_bytes,
            total.seconds + cost.seconds,
            total.warm_cpu_seconds + cost.warm_cpu_seconds,
        )
        if number in COUNTS:
            sums[number] = total
    return sums


def _retally_latency(bench: Bench, loaded: Loaded, job: RetallyJob, count: int) -> Latency:
    job.minibatch = LATENCY_MINIBATCH
    with job.running():
        bench.send(loaded, RATE, WARM_UP_SECONDS)
        wait_until_processed(job.count_processed, loaded)
        with bench.measuring(f"retally: latency with {count} views"):
            latency = bench.probe(loaded, job.sink_topic, RATE)
        wait_until_processed(job.count_processed, loaded)
    bench.check_retally(job, loaded)
    return latency


# --- Flink ----------------------------------------------------------------------------------------


def _run_flink(bench: Bench, shape: Shape, count: int) -> _Cost:
    loaded = bench.load(shape)
    job = _make_flink(bench, loaded, count)
    with bench.measuring(f"Flink: {count} views"):
        outcome = job.catch_up()
    bench.check_flink(job, loaded)
    cost = _cost_of(outcome)
    live = _make_flink(
        bench, loaded, count, delivery="exactly-once", latency="1 s", checkpoints="1 s"
    )
    with live.running():
        bench.send(loaded, RATE, WARM_UP_SECONDS)
        wait_until_processed(live.count_processed, loaded)
        time.sleep(SETTLE_SECONDS)
        with bench.measuring(f"Flink: latency with {count} views"):
            cost.latency = bench.probe(loaded, live.sink_topic, RATE)
        wait_until_processed(live.count_processed, loaded)
        time.sleep(SETTLE_SECONDS)
    bench.check_flink(live, loaded)
    return cost


def _make_flink(bench: Bench, loaded: Loaded, count: int, **options: Any) -> FlinkStatementSet:
    sink_topic = bench.new_topic("flink")
    views = dict(islice(VIEWS.items(), count))
    job = FlinkStatementSet(
        bench.brokers,
        loaded.topic,
        sink_topic,
        bench.out,
        bench.directory / sink_topic,
        views=views,
        **options,
    )
    for topic in job.topics[1:]:
        create_topic(bench.brokers, topic, loaded.stream.shape.partitions)
    return job


# --- figures --------------------------------------------------------------------------------------


def _cost_of(outcome: Outcome) -> _Cost:
    return _Cost(outcome.cpu_seconds, outcome.memory_bytes_max, outcome.seconds)


def _add(bench: Bench, engine: str, count: int, cost: _Cost, changes: int) -> None:
    def figure(what: str, value: float, unit: str) -> None:
        views = "1 view" if count == 1 else f"{count} views"
        bench.add(Figure(TITLE, engine, f"{views}: {what}", value, unit))

    figure("processor time", cost.cpu_seconds / changes * MILLION, "s per million")
    if cost.warm_cpu_seconds:
        warm = cost.warm_cpu_seconds * MILLION
        figure("processor time when warm", warm, "s per million")
    figure("memory", cost.memory_bytes / MIB, "MiB")
    figure("whole run", cost.seconds, "s")
    if cost.latency is not None:
        figure(f"readable at {RATE:,}/s, p50", cost.latency.p50_seconds, "s")
        figure(f"readable at {RATE:,}/s, p99", cost.latency.p99_seconds, "s")


def _compare_views(bench: Bench, costs: _Costs) -> None:
    """Add what the most views cost, as multiples of one view."""
    one, most = costs.views[1], costs.views[max(COUNTS)]
    cpu = most.warm_cpu_seconds / one.warm_cpu_seconds
    _add_multiple(bench, "processor time of one view's", cpu, CPU_TIMES_MAX)
    memory = most.memory_bytes / one.memory_bytes
    _add_multiple(bench, "memory of one view's", memory, MEMORY_TIMES_MAX)


def _compare_others(bench: Bench, costs: _Costs) -> None:
    """Add what the most views cost, as multiples of as many jobs and of Flink."""
    for what, others in (("as many jobs'", costs.jobs), ("Flink's", costs.flink)):
        if costs.views and others:
            ours, theirs = costs.views[max(COUNTS)], others[max(COUNTS)]
            cpu = ours.cpu_seconds / theirs.cpu_seconds
            _add_multiple(bench, f"processor time of {what}", cpu)
            _add_multiple(bench, f"memory of {what}", ours.memory_bytes / theirs.memory_bytes)


def _add_multiple(bench: Bench, what: str, value: float, most: float | None = None) -> None:
    bound, holds = ("", None) if most is None else (f"< {most}", value < most)
    what = f"{max(COUNTS)} views: {what}"
    bench.add(Figure(TITLE, "retally", what, value, "times", bound, holds))
