"""The cost of publishing in a backfill, and records a second of one publisher and of two.

backfills: exactly once to a changelog topic, and without, in turn
epochs as files ─► share 0 ─► half of the partitions ─► broker
                   helper  ─► the others
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.control_group import limit_group, make_group, remove_group, why_no_groups
from bench.fold import Folded, fold_changelog, fold_upserts
from bench.frame import Bench, Figure, Loaded
from bench.generator import Shape
from bench.outcome import BenchFailed, check
from bench.process_tree import command_line, cpu_ticks, descendants
from bench.product import RetallyJob
from bench.topic import read_committed
from bench.workloads.aggregates import audit
from jobs.core.publish.protocol import Configuration, EpochToPublish, ResultColumns, SinkTopic
from jobs.edge.publisher.handle import Publisher

TITLE = "publishing"
ROUNDS = 3
CHANGES_MAX = 1_500_000
EPOCH_CHANGES = 250_000
# The share of the rate without a topic: an update is two messages, or one.
SHARE_MIN = {"changelog-json": 0.85, "upsert-json": 0.90}
EPOCHS, EPOCH_ROWS = 6, 400_000  # the first one warms up
GROUPS = 1_000_000
PARTITIONS = 4
SHARE = 0.25  # of a core
TIMES_MIN = 1.5
GROUP = [("name", "STRING")]
OUTPUT = [*GROUP, ("sum_cnt", "BIGINT"), ("top", "INT"), ("n", "BIGINT")]
_TICKS = os.sysconf("SC_CLK_TCK")


def run(bench: Bench) -> None:
    if not bench.options.retally:
        return
    loaded = bench.load(Shape(changes=min(bench.options.changes, CHANGES_MAX)))
    forms: tuple[str | None, ...] = (None, *SHARE_MIN)
    shares: dict[str, list[float]] = {form: [] for form in SHARE_MIN}
    for turn in range(ROUNDS):
        # Rotate the order, because the speed of the machine may change during the run.
        rates = {form: _rate(bench, loaded, form, turn) for form in (*forms[turn:], *forms[:turn])}
        for form, found in shares.items():
            found.append(rates[form] / rates[None])
    for form, found in shares.items():
        share = statistics.median(found)
        bench.add(
            Figure(
                TITLE,
                "retally",
                f"{form}: of the rate without, median of {ROUNDS}",
                share,
                "",
                f">= {SHARE_MIN[form]}",
                share >= SHARE_MIN[form],
            )
        )
    _compare_publishers(bench)


def _rate(bench: Bench, loaded: Loaded, form: str | None, turn: int) -> float:
    name = f"{form or 'silent'}-{turn}"
    topic = f"{loaded.topic}-{name}"
    job = RetallyJob(
        name=name,
        brokers=bench.brokers,
        topic=loaded.topic,
        directory=bench.directory / name,
        minibatch={"size": 5_000, "latency": "1s", "max_rows": EPOCH_CHANGES},
        overrides={"sink": None if form is None else {"topic": topic, "format": form}},
        published_ms=_last_ms(form),
    )
    with bench.measuring(f"retally: {form or 'no topic'}"):
        outcome = job.catch_up()
    if form is None:
        audit(job)
    else:
        check("retally", _fold(form)(bench.brokers, job.sink_topic).table, loaded.table.truth())
    return outcome.rate_after(next(point.changes for point in outcome.progress if point.changes))


def _fold(form: str) -> Callable[[str, str], Folded]:
    return fold_upserts if form == "upsert-json" else fold_changelog


def _last_ms(form: str | None) -> Callable[[str, str], int] | None:
    return None if form is None else lambda *place: _fold(form)(*place).last_ms


# --- one publisher and two --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: records a second, and cores in use by publishers and broker."""

    rate: float
    publishers: float
    broker: float


def _compare_publishers(bench: Bench) -> None:
    """Measure one publisher and two, without the rest of a job.

    Two cores have the publishers and the broker, so this runs once without limits, and once with
    each publisher in a control group: then more publishers are more processor.
    """
    epochs = [_write(bench.directory, number) for number in range(1, EPOCHS + 1)]
    for share in (None, SHARE):
        reason = None if share is None else why_no_groups()
        if reason is not None:
            bench.say(f"publishers of {share} core: NOT MEASURED: {reason}")
            continue
        limit = "no limit" if share is None else f"{share:g} of a core each"
        runs: dict[int, list[Measured]] = {1: [], 2: []}
        with bench.measuring(f"retally: publishers, {limit}"):
            for turn in range(ROUNDS):
                for publishers in (1, 2) if turn % 2 else (2, 1):
                    runs[publishers].append(_measure(bench, epochs, publishers, share))
        for publishers, found in runs.items():
            for what in ("rate", "publishers", "broker"):
                value = statistics.median(getattr(each, what) for each in found)
                unit = "records/s" if what == "rate" else "cores"
                _add(bench, f"{limit}: {publishers}: {what}", value, unit)
        one, two = (statistics.median(each.rate for each in found) for found in runs.values())
        _add(bench, f"{limit}: two, of one", two / one, "times", bounded=share is not None)


def _add(bench: Bench, what: str, value: float, unit: str, *, bounded: bool = False) -> None:
    bound, holds = (f">= {TIMES_MIN}", value >= TIMES_MIN) if bounded else ("", None)
    bench.add(Figure(TITLE, "retally", what, value, unit, bound, holds))
    bench.say(f"{what} {value:,.2f} {unit}")


def _write(directory: Path, epoch: int) -> EpochToPublish:
    """Write the changelog of an epoch that updates some of the groups."""
    folder = directory / "publishers"
    folder.mkdir(exist_ok=True)
    chosen = np.random.default_rng(epoch).choice(GROUPS, EPOCH_ROWS // 2, replace=False)
    groups = np.repeat(chosen, 2)
    numbers = np.arange(EPOCH_ROWS)
    columns = {
        "op": pa.array(["-U", "+U"] * (EPOCH_ROWS // 2)),
        "epoch": pa.array(np.full(EPOCH_ROWS, epoch), pa.int64()),
        "seq": pa.array(numbers, pa.int64()),
        "name": pa.array([f"product-{group}" for group in groups.tolist()]),
        "sum_cnt": pa.array(groups * 7 + numbers % 2, pa.int64()),
        "top": pa.array(groups % 1_000, pa.int32()),
        "n": pa.array(numbers % 50, pa.int64()),
    }
    file = folder / f"{epoch}.parquet"
    pq.write_table(pa.table(columns), file)
    return EpochToPublish(epoch=epoch, files=[[str(file)]], rows=EPOCH_ROWS)


def _measure(
    bench: Bench, epochs: list[EpochToPublish], publishers: int, share: float | None
) -> Measured:
    topic = bench.new_topic("published", PARTITIONS)
    columns = ResultColumns(group=GROUP, output=OUTPUT)
    sink = SinkTopic(topic=topic, format="changelog-json", partitions=PARTITIONS, columns=columns)
    publisher = Publisher(
        Configuration(
            job=topic,
            generation=1,
            connection={"bootstrap.servers": bench.brokers},
            sinks=[sink],
            delivery="exactly_once",
            transactional_id=f"retally-{topic}",
            publishers=publishers,
        )
    )
    publisher.start()
    try:
        publisher.send(epochs[0])
        publisher.flush()
        assert publisher.pid is not None
        processes = descendants(publisher.pid)
        assert len(processes) == publishers
        broker = [pid for pid in descendants(os.getpid()) if "kafka.Kafka" in command_line(pid)]
        with _limited(processes, share):
            before, began = [_spent(processes), _spent(broker)], time.monotonic()
            for epoch in epochs[1:]:
                publisher.send(epoch)
            publisher.flush()
            seconds = time.monotonic() - began
            spent = [_spent(processes) - before[0], _spent(broker) - before[1]]
            publisher.kill()  # in the block, which waits for its helper, too
    finally:
        publisher.kill()
    records = sum(map(len, read_committed(bench.brokers, topic)))
    if records != len(epochs) * EPOCH_ROWS:
        raise BenchFailed(f"{topic} has {records:,} records")
    return Measured((len(epochs) - 1) * EPOCH_ROWS / seconds, *(each / seconds for each in spent))


def _spent(processes: list[int]) -> float:
    return sum(map(cpu_ticks, processes)) / _TICKS


@contextmanager
def _limited(processes: list[int], share: float | None) -> Iterator[None]:
    """Let each process use its share of a core, while the block runs."""
    with ExitStack() as closing:
        for pid in processes if share is not None else ():
            assert share is not None
            group = make_group(str(pid))
            closing.callback(remove_group, group)
            limit_group(group, share)
            (group / "cgroup.procs").write_text(str(pid))
        yield
