"""A join of orders and customers, exactly once, compared with Flink SQL.

    orders ────┬─► retally, Flink with state on the heap, Flink with RocksDB
    customers ─┘     backfill: the rate and the memory
                     5,000 changes/s: the time until a change is readable
                     10 million orders (`--groups`): the memory

One change in a hundred moves a customer, with all of his orders, to another of 1,000 regions.
`--changes 300000 --groups 300000 --seconds 20` tries it in some minutes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench.flink.joined import FlinkJoin
from bench.flink.peer import JVM, State
from bench.fold import fold_changelog, fold_upserts
from bench.frame import MIB, Bench, Figure
from bench.latency import PROBES_PER_SECOND, SETTLE_SECONDS, Latency, probe_latency
from bench.orders import CUSTOMERS, ORDERS, OrdersShape, OrdersTables
from bench.outcome import BenchFailed, Outcome, check
from bench.product import MINIBATCH, RetallyJob
from bench.topic import PARTITIONS, fill, producer, send_steadily
from bench.workloads import latency
from bench.workloads.backfill import WARM_SHARE
from bench.workloads.epoch import wait_until_processed

TITLE = "joins"
QUERY = (
    "SELECT c.region AS name, SUM(o.amount) AS total, COUNT(*) AS n "
    "FROM orders AS o JOIN customers AS c ON o.customer_id = c.id GROUP BY c.region"
)
RATE = 5_000
LATENCY_CHANGES_MAX = 1_000_000
CUSTOMERS_MAX, CHANGES_A_CUSTOMER, CHANGES_A_LIVE_ORDER = 200_000, 30, 6
RATES_MIN: dict[State, float] = {"hashmap": 2.0, "rocksdb": 4.0}
LATENCY_MAX = 0.7
EPOCHS_MIN, EPOCH_ROWS_MAX = 8, 500_000
MEMORY_SHARE_MAX = 0.5
LARGE_JVM = ("-Xms1g", "-Xmx10g")  # for a state that does not fit into the heap of other workloads


@dataclass(frozen=True, slots=True)
class Filled:
    """Two topics with all changes so far of both tables."""

    topics: tuple[str, str]
    table: OrdersTables


def run(bench: Bench) -> None:
    """Measure each part, also after one of them has failed: a run takes half an hour."""
    failures = []
    for measure in (_backfills, _latencies, _memories):
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
        job = _make_peer(bench, filled, state=state)
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
        job = _make_peer(bench, filled, state=state, latency="1 s", checkpoints="1 s")
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
        job = _make_peer(bench, filled, jvm=LARGE_JVM)
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


def fill_tables(bench: Bench, shape: OrdersShape, probes: int = 0) -> Filled:
    topics = bench.new_topic("orders", PARTITIONS), bench.new_topic("customers", PARTITIONS)
    table = OrdersTables(shape)
    seconds = fill(bench.brokers, topics, table.stream())
    fill(bench.brokers, topics, enumerate(table.add_probes(probes)))
    bench.say(f"{table.sequence:,} changes in {' and '.join(topics)} after {seconds:.1f} s")
    return Filled(topics, table)


def make_job(bench: Bench, filled: Filled) -> RetallyJob:
    orders, customers = filled.topics
    sources = {
        "orders": {"topic": orders, "columns": ORDERS},
        "customers": {"topic": customers, "columns": CUSTOMERS},
    }
    of_each = {"format": "canal-json", "start": "earliest"}
    return RetallyJob(
        name="join",
        brokers=bench.brokers,
        topic=orders,
        directory=bench.directory / orders,
        minibatch=MINIBATCH | {"max_rows": _count_epoch_rows(filled)},
        overrides={
            "source": None,
            "columns": None,
            "sources": {name: of_each | source for name, source in sources.items()},
            "query": QUERY,
        },
    )


def _count_epoch_rows(filled: Filled) -> int:
    """Return the rows of an epoch: as in the other backfills, but a small run has epochs too."""
    return min(EPOCH_ROWS_MAX, filled.table.sequence // EPOCHS_MIN)


def _make_peer(
    bench: Bench,
    filled: Filled,
    *,
    state: State = "hashmap",
    latency: str = "5 s",
    checkpoints: str = "10 s",
    jvm: tuple[str, ...] = JVM,
) -> FlinkJoin:
    sink_topic = bench.new_topic("flink")
    orders, customers = filled.topics
    return FlinkJoin(
        bench.brokers,
        orders,
        sink_topic,
        bench.out,
        bench.directory / sink_topic,
        state=state,
        delivery="exactly-once",
        latency=latency,
        checkpoints=checkpoints,
        jvm=jvm,
        query=QUERY,
        customers=customers,
    )


def check_result(bench: Bench, job: RetallyJob | FlinkJoin, filled: Filled) -> None:
    ours = isinstance(job, RetallyJob)
    fold = fold_changelog if ours else fold_upserts
    result = fold(bench.brokers, job.sink_topic).table
    check("retally" if ours else "Flink", result, filled.table.truth())


def _add(bench: Bench, engine: str, what: str, value: float, unit: str) -> None:
    bench.add(Figure(TITLE, engine, what, value, unit))


def _bound(bench: Bench, what: str, value: float, bound: str, holds: bool) -> None:
    bench.add(Figure(TITLE, "retally", what, value, "times", bound, holds))
