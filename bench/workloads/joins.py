"""A join of orders and customers, exactly once, compared with Flink SQL.

    orders ────┬─► retally, Flink with state on the heap, Flink with RocksDB
    customers ─┘     backfill: the rate and the memory
                     5,000 changes/s: the time until a change is readable
                     10 million orders (`--groups`): the memory
                     a customer with a million orders moves: the epoch

One change in a hundred moves a customer, with all of his orders, to another of 1,000 regions.
`--changes 300000 --groups 300000 --seconds 20` tries it in some minutes.
"""

from __future__ import annotations

import time

from bench.flink.joined import FlinkJoin
from bench.flink.peer import State
from bench.frame import MIB, Bench, Figure
from bench.joins.jobs import Filled, check_result, fill_tables, make_job, make_peer
from bench.joins.orders import OrdersShape
from bench.joins.skew import measure_skew
from bench.latency import PROBES_PER_SECOND, SETTLE_SECONDS, Latency, probe_latency
from bench.outcome import BenchFailed, Outcome
from bench.product import RetallyJob
from bench.topic import producer, send_steadily
from bench.workloads import latency
from bench.workloads.backfill import WARM_SHARE
from bench.workloads.epoch import wait_until_processed

TITLE = "joins"
RATE = 5_000
LATENCY_CHANGES_MAX = 1_000_000
CUSTOMERS_MAX, CHANGES_A_CUSTOMER, CHANGES_A_LIVE_ORDER = 200_000, 30, 6
RATES_MIN: dict[State, float] = {"hashmap": 2.0, "rocksdb": 4.0}
LATENCY_MAX = 0.7
MEMORY_SHARE_MAX = 0.5
LARGE_JVM = ("-Xms1g", "-Xmx10g")  # for a state that does not fit into the heap of other workloads


def run(bench: Bench) -> None:
    """Measure each part, also after one of them has failed: a run takes half an hour."""
    failures = []
    for measure in (_backfills, _latencies, _memories, measure_skew):
        try:
            measure(bench)
        except BenchFailed as problem:
            failures.append(str(problem))
    if failures:
        raise BenchFailed("; ".join(failures))


# --- backfill -------------------------------------------------------------------------------------


def _backfills(bench: Bench) -> None:
    filled = fill_tables(bench, _shape(bench, bench.options.changes))
    warm = int(filled.table.sequence * WARM_SHARE)
    ours = 0.0
    if bench.options.retally:
        outcome = _catch_up(bench, filled)
        # From its first epoch on, as in the other backfills.
        warm = next(point.changes for point in outcome.progress if point.changes)
        ours = _add_backfill(bench, outcome, warm)
    if not bench.options.flink:
        return
    for state, least in RATES_MIN.items():
        job = make_peer(bench, filled, state=state)
        with bench.measuring(f"{job.engine}: backfill of a join"):
            outcome = job.catch_up()
        check_result(bench, job, filled)
        times = ours / _add_backfill(bench, outcome, warm)
        if ours:
            name = f"rate, of that of {job.engine}"
            _bound(bench, name, times, f">= {least:.0f}", times >= least)


def _catch_up(bench: Bench, filled: Filled) -> Outcome:
    job = make_job(bench, filled)
    with bench.measuring("retally: backfill of a join"):
        outcome = job.catch_up()
    check_result(bench, job, filled)
    return outcome


def _add_backfill(bench: Bench, outcome: Outcome, warm: int) -> float:
    rate = outcome.rate_after(warm)
    _add(bench, outcome.engine, "backfill: rate when warm", rate, "changes/s")
    _add(bench, outcome.engine, "backfill: whole run, start included", outcome.seconds, "s")
    memory = outcome.memory_bytes_max / MIB
    _add(bench, outcome.engine, "backfill: memory, RssAnon at most", memory, "MiB")
    return rate


# --- latency --------------------------------------------------------------------------------------


def _latencies(bench: Bench) -> None:
    ours = _measure_latency(bench, None) if bench.options.retally else None
    if not bench.options.flink:
        return
    theirs = {state: _measure_latency(bench, state) for state in RATES_MIN}
    if ours is None:
        return
    heap = theirs["hashmap"]
    for what, share in (
        ("p50", ours.p50_seconds / heap.p50_seconds),
        ("p99", ours.p99_seconds / heap.p99_seconds),
    ):
        name = f"readable at {RATE:,}/s, {what}, of Flink's (heap)"
        _bound(bench, name, share, f"<= {LATENCY_MAX}", share <= LATENCY_MAX)


def _measure_latency(bench: Bench, state: State | None) -> Latency:
    """Measure Flink with this state, or retally."""
    shape = _shape(bench, min(bench.options.changes, LATENCY_CHANGES_MAX))
    probes = round((SETTLE_SECONDS + bench.options.seconds) * PROBES_PER_SECOND)
    filled = fill_tables(bench, shape, probes)
    job: RetallyJob | FlinkJoin
    if state is None:
        job = make_job(bench, filled)
        job.catch_up()
        job.minibatch = dict(latency.MINIBATCH)
    else:
        job = make_peer(bench, filled, state=state, latency="1 s", checkpoints="1 s")
    engine = "retally" if state is None else job.engine  # type: ignore[union-attr]
    with job.running():
        wait_until_processed(job.count_processed, filled)
        client = producer(bench.brokers, 5)
        send_steadily(
            client, filled.topics, filled.table, rate=RATE, seconds=latency.WARM_UP_SECONDS
        )
        wait_until_processed(job.count_processed, filled)
        with bench.measuring(f"{engine}: latency of a join at {RATE:,} changes/s"):
            found = probe_latency(
                bench.brokers,
                filled.topics,
                job.sink_topic,
                filled.table,
                rate=RATE,
                seconds=bench.options.seconds,
            )
        wait_until_processed(job.count_processed, filled)
        time.sleep(SETTLE_SECONDS)
    check_result(bench, job, filled)
    for what, seconds in (("p50", found.p50_seconds), ("p99", found.p99_seconds)):
        _add(bench, engine, f"readable at {RATE:,}/s, {what}", seconds, "s")
    return found


# --- memory ---------------------------------------------------------------------------------------


def _memories(bench: Bench) -> None:
    """Measure the memory that many orders take; all of them are inserts."""
    orders = bench.options.groups
    customers = _shape(bench, bench.options.changes).customers
    filled = fill_tables(
        bench, OrdersShape(orders, orders, customers, customer_share=0.0, update_share=0.0)
    )
    what = f"{orders:,} orders: memory, RssAnon at most"
    shares = {}
    if bench.options.retally:
        shares["retally"] = _catch_up(bench, filled).memory_bytes_max
        _add(bench, "retally", what, shares["retally"] / MIB, "MiB")
    if bench.options.flink:
        job = make_peer(bench, filled, jvm=LARGE_JVM)
        with bench.measuring(f"Flink: {orders:,} orders"):
            shares["Flink"] = job.catch_up().memory_bytes_max
        check_result(bench, job, filled)
        _add(bench, job.engine, what, shares["Flink"] / MIB, "MiB")
    if len(shares) == 2:
        share = shares["retally"] / shares["Flink"]
        name = f"{orders:,} orders: memory, of Flink's (heap)"
        _bound(bench, name, share, f"<= {MEMORY_SHARE_MAX}", share <= MEMORY_SHARE_MAX)


# --- parts ----------------------------------------------------------------------------------------


def _shape(bench: Bench, changes: int) -> OrdersShape:
    """Return the shape with so many changes; a smaller run has fewer customers as well."""
    return OrdersShape(
        changes=changes,
        live_orders=changes // CHANGES_A_LIVE_ORDER,
        customers=min(CUSTOMERS_MAX, bench.options.changes // CHANGES_A_CUSTOMER),
    )


def _add(bench: Bench, engine: str, what: str, value: float, unit: str) -> None:
    bench.add(Figure(TITLE, engine, what, value, unit))


def _bound(bench: Bench, what: str, value: float, bound: str, holds: bool) -> None:
    bench.add(Figure(TITLE, "retally", what, value, "times", bound, holds))
