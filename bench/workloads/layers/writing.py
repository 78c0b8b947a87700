"""The bytes written to the table for each byte of changed state, until a base is written.

    5,000 changes ─► an epoch's files ─► ONE commit ─► the merges that are due
    a million groups                                   tier 1 each 32nd epoch, tier 2 each 1,024th,
                                                       a base once tier 2 outweighs it
It runs without Kafka and Spark: a running job needs more than a quarter of an hour until its first
base.
"""

from __future__ import annotations

from bench.fold import QUERY
from bench.folding import DECLARED, EpochsByHand
from bench.frame import MIB, Bench, Figure
from bench.generator import ShopTable, in_motion, one_row_each
from bench.workloads.layers.commits import keep_up
from bench.written import Written, newest_version, written_since
from jobs.core.sql.select import parse_query

TITLE = "writing"
GROUPS_MAX = 1_000_000
EPOCHS = 2_200
CHANGES = 5_000
FILL_CHANGES = 100_000
COUNT_EVERY = 50  # epochs: long before the log is trimmed
TIMES_MAX = 4.0


def run(bench: Bench) -> None:
    if not bench.options.retally:
        return
    groups = min(GROUPS_MAX, bench.options.groups)
    directory = bench.directory / "writing"
    job = EpochsByHand(parse_query(QUERY, DECLARED), directory)
    table = ShopTable(one_row_each(groups))
    with bench.measuring(f"what is written: filling {groups:,} groups"):
        for _ in range(0, groups, FILL_CHANGES):
            _epoch(job, table, FILL_CHANGES)
    table.shape = in_motion(groups)
    written = Written()
    with bench.measuring(f"what is written: {EPOCHS:,} epochs over {groups:,} groups"):
        for _ in range(0, EPOCHS, COUNT_EVERY):
            since = newest_version(directory / "epochs")
            for _ in range(COUNT_EVERY):
                _epoch(job, table, CHANGES)
            written.add(written_since(directory / "epochs", since))
    _add_figures(bench, written)


def _epoch(job: EpochsByHand, table: ShopTable, changes: int) -> None:
    lines = [line for lines in table.changes(changes) for line in lines]
    job.commit(job.fold(job.project(*job.decode(lines))))
    keep_up(job)


def _add_figures(bench: Bench, written: Written) -> None:
    times = written.times
    bench.add(
        Figure(
            TITLE,
            "retally",
            f"{EPOCHS:,} epochs: written, of changed state",
            times,
            "times",
            f"<= {TIMES_MAX:.0f}",
            times <= TIMES_MAX,
        )
    )
    for what, size in (
        ("changed state", written.state),
        ("changelog and the rest", written.rest),
        ("merges", written.merged),
        ("the log", written.log),
    ):
        bench.add(Figure(TITLE, "retally", f"of an epoch: {what}", size / EPOCHS / MIB, "MiB"))
