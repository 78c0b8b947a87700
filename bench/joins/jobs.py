"""The jobs that join orders and customers, over topics with both tables."""

from __future__ import annotations

from dataclasses import dataclass

from bench.flink.joined import FlinkJoin
from bench.flink.peer import JVM, State
from bench.fold import fold_changelog, fold_upserts
from bench.frame import Bench
from bench.joins.orders import CUSTOMERS, ORDERS, OrdersShape, OrdersTables
from bench.outcome import check
from bench.product import MINIBATCH, RetallyJob
from bench.topic import PARTITIONS, fill

QUERY = (
    "SELECT c.region AS name, SUM(o.amount) AS total, COUNT(*) AS n "
    "FROM orders AS o JOIN customers AS c ON o.customer_id = c.id GROUP BY c.region"
)
EPOCHS_MIN, EPOCH_ROWS_MAX = 8, 500_000


@dataclass(frozen=True, slots=True)
class Filled:
    """Two topics with all changes so far of both tables."""

    topics: tuple[str, str]
    table: OrdersTables


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


def make_peer(
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
