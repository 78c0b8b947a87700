"""One customer with a million orders moves to another region: one change, a million joined rows.

    a million orders of one customer ──► caught up ──► he moves, again and again ──► commit

Measured are the time from each move to the commit of its epoch, the memory of the job's processes
while it moves and while it does not, and the bytes that a row of a side takes. The query reads the
orders' ids, so that no two of their rows are equal.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from pathlib import Path

from bench.frame import MIB, Bench, Figure
from bench.joins.jobs import QUERY, Filled, check_result, fill_tables, make_job
from bench.joins.orders import OrdersShape
from bench.process_tree import sampled_footprint
from bench.product import RetallyJob
from bench.topic import fill
from bench.workloads.epoch import wait_until_processed
from jobs.core.join.stages import JOIN_PREFIX
from jobs.reading.files import live_files, open_table

TITLE = "joins"
ORDERS_MAX = 1_000_000
MOVES = 3
SECONDS_MAX = 60.0
SETTLE_SECONDS = 5.0
_BY_ID = QUERY.replace("SUM(o.amount)", "SUM(o.amount + 0 * o.id)")


def measure_skew(bench: Bench) -> None:
    if not bench.options.retally:
        return
    orders = min(ORDERS_MAX, bench.options.changes)
    filled = fill_tables(
        bench, OrdersShape(orders, orders, 1, customer_share=0.0, update_share=0.0)
    )
    job = make_job(bench, filled)
    job.overrides["query"] = _BY_ID
    with bench.measuring(f"retally: {orders:,} orders of one customer"):
        job.catch_up()
    _add_bytes(bench, job, orders)
    job.minibatch = {"size": 1, "latency": "1s", "max_rows": orders}
    with job.running() as process:
        with sampled_footprint(process.pid) as idle:
            _send(bench, job, filled, 1_000)  # the start is over, and the state is open
            time.sleep(SETTLE_SECONDS)
        filled.table.shape = replace(filled.table.shape, customer_share=1.0)
        with (
            bench.measuring(f"retally: a customer with {orders:,} orders moves"),
            sampled_footprint(process.pid) as moving,
        ):
            seconds = [_send(bench, job, filled, 1) for _ in range(MOVES)]
    check_result(bench, job, filled)
    median = statistics.median(seconds)
    name = f"{orders:,} orders change with one row: until committed, median"
    bounded = median <= SECONDS_MAX
    bench.add(Figure(TITLE, "retally", name, median, "s", f"<= {SECONDS_MAX:.0f}", bounded))
    _add(bench, "memory before", idle.memory_bytes_max / MIB, "MiB")
    _add(bench, "memory while they change", moving.memory_bytes_max / MIB, "MiB")


def _send(bench: Bench, job: RetallyJob, filled: Filled, changes: int) -> float:
    """Send changes; return the seconds until their commit."""
    began = time.time()
    fill(bench.brokers, filled.topics, enumerate(filled.table.changes(changes)))
    wait_until_processed(job.count_processed, filled)
    return job.epochs()[-1].committed_ms / 1_000 - began


def _add_bytes(bench: Bench, job: RetallyJob, orders: int) -> None:
    """Add what the side of the orders takes, in the table and in the hot state."""
    sides: dict[str, int] = {}
    for file in live_files(open_table(job.table)):
        name = file.part.partition(":")[0]
        if name.startswith(JOIN_PREFIX):
            sides[name] = sides.get(name, 0) + file.size
    _add(bench, "table, a row of a side", max(sides.values()) / orders, "bytes")
    hot = [_allocated(path) for path in (job.cache / job.name).iterdir()]  # one of each side
    _add(bench, "hot state, a row of a side", max(hot, default=0) / orders, "bytes")


def _allocated(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


def _add(bench: Bench, what: str, value: float, unit: str) -> None:
    bench.add(Figure(TITLE, "retally", what, value, unit))
