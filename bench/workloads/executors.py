"""How the rate grows with executors: 1, 2 and 4 of one slot, each with a share of a core.

Also the rate of a join, whose sides have homes too.

a full topic ──► for each number of executors: a new job ──► rate, epochs, phases, processor time

The limit makes more executors really more processor, as long as they leave enough of the machine to
driver, publisher and broker, which have none. A pair of runs has 2 and 16 slots on the same
processors: what more tasks cost. docs/scale.md calculates with these figures.
"""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass, replace

from bench.cluster import Cluster
from bench.frame import Bench, Figure, Loaded
from bench.generator import Shape
from bench.joins.jobs import Filled, check_result, fill_tables, make_job
from bench.joins.orders import OrdersShape
from bench.outcome import BenchFailed
from bench.process_tree import command_line, cpu_ticks_with_ended, descendants
from bench.product import RetallyJob
from jobs.reading.epoch_rows import epoch_rows
from jobs.reading.files import live_files, open_table
from schemas.table.epoch import EpochRow

TITLE = "executors"
SHAPE = Shape(changes=1_500_000, live_rows=300_000, groups=100_000)
# As many messages: one for each customer is before the changes.
_CUSTOMERS = 50_000
ORDERS = OrdersShape(SHAPE.changes - _CUSTOMERS, live_orders=250_000, customers=_CUSTOMERS)
# Shares of the topic: without a limit up to the first one, because the first epochs compile. Some
# epochs later the measurement begins.
LIMITED_FROM, MEASURED_FROM, MEASURED_TO = 0.15, 0.35, 0.95
# More executors of this share are as much more processor, with two cores for all else.
BOUNDED_SHARE = 0.25
TIMES_MIN = {2: 1.8, 4: 3.0}  # the rate of one executor
CAUGHT_UP_MAX = 5.0  # while no executor dies or joins
_TIMES, _CAUGHT_UP = "rate, compared with one executor", "rows caught up"
RUN_SECONDS_MAX = 900.0
POLL_SECONDS = 0.5
_TICKS = os.sysconf("SC_CLK_TCK")
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Setup:
    """Workers, the slots of each, the share of a core of each (None: no limit), and the job."""

    workers: int
    share: float | None
    slots: int = 1
    epoch_rows: int = 100_000
    joins: bool = False

    @property
    def name(self) -> str:
        if self.share is None:
            return f"{self.workers * self.slots} slots on the same cores"
        return f"{'join, ' if self.joins else ''}{self.workers} of {self.share:g} core"


SETUPS = (
    *(Setup(workers, BOUNDED_SHARE) for workers in (1, 2, 4)),
    Setup(2, None, 1, 250_000),
    Setup(2, None, 8, 250_000),
    *(Setup(workers, 0.5) for workers in (1, 2, 4)),
    *(Setup(workers, BOUNDED_SHARE, joins=True) for workers in (1, 2, 4)),
)


def run(bench: Bench) -> None:
    if not bench.options.retally:
        return
    reason = Cluster.why_not()
    if reason is not None:
        bench.say(f"executors: NOT MEASURED: {reason}")
        return
    loaded, filled = bench.load(SHAPE), fill_tables(bench, ORDERS)
    one = 0.0  # the rate of one executor
    for number, setup in enumerate(SETUPS, 1):
        with bench.measuring(f"retally: {setup.name}"):
            figures = _measure(bench, loaded, filled, setup, f"executors{number}")
            one = figures[0][1] if setup.workers == 1 else one
            if setup.share == BOUNDED_SHARE and setup.workers > 1:
                figures.append((_TIMES, figures[0][1] / one, "times"))
            for what, value, unit in figures:
                bound, holds = _find_bound(what, value, setup)
                name = f"{setup.name}: {what}"
                bench.add(Figure(TITLE, "retally", name, value, unit, bound, holds))
                bench.say(f"{name} {value:,.2f} {unit}")


def _find_bound(what: str, value: float, setup: Setup) -> tuple[str, bool | None]:
    """Return the bound of a figure, and whether it holds; "" and None without a bound."""
    if what == _TIMES:
        least = TIMES_MIN[setup.workers]
        return f">= {least}", value >= least
    if what == _CAUGHT_UP and setup.workers > 1:
        return f"<= {CAUGHT_UP_MAX}", value <= CAUGHT_UP_MAX
    return "", None


def _measure(
    bench: Bench, loaded: Loaded, filled: Filled, setup: Setup, name: str
) -> list[tuple[str, float, str]]:
    directory = bench.directory / name
    plain = RetallyJob(name, bench.brokers, loaded.topic, directory)
    with Cluster(directory / "cluster", setup.workers, setup.slots) as cluster:
        job = replace(
            make_job(bench, filled) if setup.joins else plain,
            name=name,
            directory=directory,
            minibatch={"size": 5_000, "latency": "1s", "max_rows": setup.epoch_rows},
            flags=("--master", cluster.master),
            environment={"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_EXECUTOR_MEMORY": "768m"},
        )
        with job.running() as process:
            _wait(job, LIMITED_FROM)
            if setup.share is not None:
                cluster.limit(setup.share)
            first = _wait(job, MEASURED_FROM)
            before = _spent(process.pid, cluster)
            last = _wait(job, MEASURED_TO)
            spent = {name: ms - before[name] for name, ms in _spent(process.pid, cluster).items()}
            _wait(job, 1.0)
        rows = epoch_rows(job.table, live_files(open_table(job.table)))
    if setup.joins:
        check_result(bench, job, filled)
    else:
        bench.check_retally(job, loaded)
    return _figures([row for row in rows if first <= row.epoch <= last], spent)


def _wait(job: RetallyJob, share: float) -> int:
    """Wait until the job has processed a share of the topic; return its newest epoch."""
    give_up = time.monotonic() + RUN_SECONDS_MAX
    while (done := job.count_processed()) < SHAPE.changes * share:
        if time.monotonic() > give_up:
            raise BenchFailed(f"only {done:,} of {SHAPE.changes:,} changes were processed")
        time.sleep(POLL_SECONDS)
    return job.epochs()[-1].epoch


def _spent(driver: int, cluster: Cluster) -> dict[str, float]:
    """Return the processor time of each part so far, in milliseconds."""
    executors = cluster.processes()
    of_driver = set(descendants(driver))
    spent = dict.fromkeys(("executors", "driver", "publisher", "broker"), 0.0)
    for pid in executors | set(descendants(os.getpid())):
        line = command_line(pid)
        if pid in executors:
            part = "executors"
        elif "jobs.edge.publisher" in line:
            part = "publisher"
        elif pid in of_driver:
            part = "driver"
        elif "kafka" in line:
            part = "broker"
        else:
            continue
        spent[part] += cpu_ticks_with_ended(pid) * 1_000 / _TICKS
    return spent


def _figures(rows: list[EpochRow], spent: dict[str, float]) -> list[tuple[str, float, str]]:
    """Return the figures of the epochs after the first of these."""
    measured = rows[1:]
    read = sum(row.counts.read for row in measured)
    seconds = (rows[-1].committed_at - rows[0].committed_at) / 1e6
    records = sum(row.counts.changelog_rows for row in measured)
    folded, caught_up, placed, at_home = (
        sum(getattr(row.counts, name) for row in measured)
        for name in ("rows_folded", "rows_caught_up", "tasks_placed", "tasks_at_home")
    )

    def median_ms(*phases: str) -> float:
        return statistics.median(
            sum(row.counts.phases_ms.get(phase, 0.0) for phase in phases) for row in measured
        )

    return [
        ("rate", read / seconds, "changes/s"),
        ("an epoch", 1_000 * seconds / len(measured), "ms"),
        ("its changes", read / len(measured), "changes"),
        ("its records of the topic", records / len(measured), "records"),
        (_CAUGHT_UP, 100 * caught_up / folded, "% of the rows folded"),
        *([("tasks at home", 100 * at_home / placed, "%")] if placed else []),
        ("its tasks", median_ms("tasks"), "ms"),
        ("its planning and checks", median_ms("plan", "check"), "ms"),
        ("its commit", median_ms("commit"), "ms"),
        ("its publishing, beside the next epoch", median_ms("publish"), "ms"),
        *(
            (f"processor time, {part}", ms / (read / _MILLION) / 1_000, "s per million changes")
            for part, ms in spent.items()
        ),
    ]
