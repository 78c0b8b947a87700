"""The commit layer alone: the epochs of a day at one every ten seconds, with merges.

    one tiny epoch ─► files ─► ONE commit ─► merges that are due ─► every hundredth: a checkpoint

It runs without Kafka and Spark, as fast as possible. The slopes show whether a table gets slower or
larger with the number of commits. A day passes in minutes, so the hour for which Delta keeps the
names of removed files is shortened with it: to as many epochs as there are in an hour.
"""

from __future__ import annotations

import statistics
import time
from uuid import uuid4

import numpy as np

from bench.folding import EpochsByHand, plan_of
from bench.frame import Bench, Figure
from bench.generator import Shape, ShopTable
from bench.workloads.aggregates import ROWS
from jobs.edge.table.compaction import due_merge, merge_files
from jobs.edge.table.delta_epochs import EpochTable, write_checkpoint
from jobs.reading.epoch_rows import newest_epoch
from jobs.reading.files import live_files, open_table
from schemas.limits import CHECKPOINT_EVERY_COMMITS, LIVE_FILES_MAX

TITLE = "commits"
EPOCHS = 8_640
CHANGES = 20
READ_EVERY = 60
SLOPE_MAX = 0.25  # of the median, over all epochs
HOUR = "interval 15 seconds"  # 360 epochs take about as long


def run(bench: Bench) -> None:
    if not bench.options.retally:
        return
    directory = bench.directory / "commits"
    job = EpochsByHand(plan_of(ROWS), directory)
    job.table.handle.alter.set_table_properties({"delta.deletedFileRetentionDuration": HOUR})
    job.table = EpochTable.open(job.table.root, job.layout)
    table = ShopTable(Shape(live_rows=2_000, groups=500, skew=None))
    commits: list[float] = []
    reads: list[float] = []
    files: list[int] = []
    with bench.measuring(f"the commit layer: {EPOCHS:,} epochs"):
        for epoch in range(EPOCHS):
            lines = [line for lines in table.changes(CHANGES) for line in lines]
            report = job.fold(job.project(*job.decode(lines)))
            began = time.perf_counter()
            job.commit(report)
            commits.append(time.perf_counter() - began)
            keep_up(job)
            if epoch % READ_EVERY == 0:
                reads.append(_read(job))
                files.append(len(job.table.live_files()))
    log = len(list((directory / "epochs" / "_delta_log").iterdir()))
    _add_times(bench, "commit", commits)
    _add_times(bench, "open and read the newest epoch", reads)
    most = max(files)
    bench.add(
        Figure(
            TITLE,
            "retally",
            "live files, at most",
            most,
            "",
            f"<= {LIVE_FILES_MAX}",
            most <= LIVE_FILES_MAX,
        )
    )
    bench.add(Figure(TITLE, "retally", "files of the log at the end", log, ""))


def keep_up(job: EpochsByHand) -> None:
    """Merge files and write checkpoints, as maintenance does in a running job."""
    table = job.table
    while (merge := due_merge(table.live_files(), job.row.epoch)) is not None:
        uuid = uuid4().hex
        added = merge_files(job.plan, table.root, merge, uuid)
        table.commit(added, merge.files, uuid=uuid, what="compaction")
    if job.row.epoch % CHECKPOINT_EVERY_COMMITS == 0:
        write_checkpoint(table.root, table.version)
        table.reopen()


def _read(job: EpochsByHand) -> float:
    began = time.perf_counter()
    newest = newest_epoch(job.table.root, live_files(open_table(job.table.root)))
    assert newest is not None and newest.epoch == job.row.epoch
    return time.perf_counter() - began


def _add_times(bench: Bench, what: str, seconds: list[float]) -> None:
    median = statistics.median(seconds)
    slope, _ = np.polyfit(np.linspace(0, 1, len(seconds)), seconds, 1)
    share = float(slope) / median
    bench.add(Figure(TITLE, "retally", f"{what}, median", median * 1_000, "ms"))
    bench.add(
        Figure(
            TITLE,
            "retally",
            f"{what}: slope over all epochs",
            share,
            "of the median",
            f"< {SLOPE_MAX}",
            share < SLOPE_MAX,
        )
    )
