"""Epochs of a steady stream, compared with foreachBatch + MERGE of plain Spark; a million groups.

Both process all changes since their last commit, so a slow epoch has more changes. The time is
measured between commits, at the same 5,000 changes/s.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from deltalake import DeltaTable

from bench.frame import Bench, Figure, Loaded
from bench.generator import in_motion, one_row_each
from bench.outcome import BenchFailed
from bench.product import RetallyJob
from bench.topic import producer, send_steadily
from bench.workloads.epoch import wait_until_processed

TITLE = "against MERGE"
GROUPS = 1_000_000
RATE = 5_000
TIMES_MIN = 10.0
STOP_SECONDS = 60


@dataclass(slots=True)
class MergeJob:
    brokers: str
    topic: str
    table: Path
    log: Path
    batches: list[dict[str, float]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        command = [sys.executable, "-m", "bench.merge_query", self.brokers, self.topic]
        with (
            self.log.open("ab") as log,
            subprocess.Popen(
                [*command, str(self.table)], stdout=subprocess.PIPE, stderr=log, text=True
            ) as process,
        ):
            reader = threading.Thread(target=self._follow, args=(process,), daemon=True)
            reader.start()
            try:
                yield
            finally:
                process.kill()
                reader.join(STOP_SECONDS)

    def count_processed(self) -> int:
        if self.ended.is_set():
            raise BenchFailed(f"foreachBatch + MERGE ended: see {self.log}")
        return int(self.batches[-1]["processed"]) if self.batches else 0

    def _follow(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith('{"batch"'):
                self.batches.append(json.loads(line))
        self.ended.set()


def run(bench: Bench) -> None:
    groups = min(GROUPS, bench.options.groups)
    theirs = _merge(bench, groups) if bench.options.flink else 0.0
    if not bench.options.retally:
        return
    ours = _retally(bench, groups)
    bench.add(Figure(TITLE, "retally", "steady epoch, median", ours, "s"))
    if theirs:
        times = theirs / ours
        bench.add(
            Figure(
                TITLE,
                "retally",
                "MERGE's time, of ours",
                times,
                "times",
                f">= {TIMES_MIN:.0f}",
                times >= TIMES_MIN,
            )
        )


def _merge(bench: Bench, groups: int) -> float:
    loaded = bench.load(one_row_each(groups))
    directory = bench.directory / "merge"
    directory.mkdir()
    job = MergeJob(bench.brokers, loaded.topic, directory / "table", directory / "spark.log")
    with bench.measuring("foreachBatch + MERGE: steady"), job.running():
        wait_until_processed(job.count_processed, loaded)
        before = len(job.batches)
        _feed(bench, loaded, groups)
        wait_until_processed(job.count_processed, loaded)
    gaps = [each["ended"] - each["began"] for each in job.batches[before:]]
    if not gaps:
        raise BenchFailed("MERGE had no batch of the steady stream")
    _check(job.table, loaded)
    seconds = statistics.median(gaps)
    rows = statistics.median(each["rows"] for each in job.batches[before:])
    bench.add(Figure(TITLE, "Spark MERGE", "steady epoch, median", seconds, "s"))
    bench.add(Figure(TITLE, "Spark MERGE", "changes in it", rows, ""))
    return seconds


def _retally(bench: Bench, groups: int) -> float:
    loaded = bench.load(one_row_each(groups))
    job = RetallyJob(
        name="steady",
        brokers=bench.brokers,
        topic=loaded.topic,
        directory=bench.directory / "steady",
    )
    job.catch_up()
    before = job.epochs()[-1].epoch
    job.minibatch = {"size": 1, "max_rows": 200_000}
    with bench.measuring("retally: steady"), job.running():
        _feed(bench, loaded, groups)
        wait_until_processed(job.count_processed, loaded)
    bench.check_retally(job, loaded)
    stamps = [each.committed_ms for each in job.epochs() if each.epoch > before]
    return statistics.median((after - at) / 1_000 for at, after in itertools.pairwise(stamps))


def _feed(bench: Bench, loaded: Loaded, groups: int) -> None:
    loaded.table.shape = in_motion(groups)
    sending = producer(bench.brokers, 5)
    send_steadily(sending, loaded.topic, loaded.table, rate=RATE, seconds=bench.options.seconds)
    time.sleep(1)


def _check(table: Path, loaded: Loaded) -> None:
    rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    result = {row["name"]: (row["total"], row["n"]) for row in rows}
    truth = {name: (total, n) for name, (total, _, n) in loaded.table.truth().items()}
    if result != truth:
        raise BenchFailed("MERGE has a wrong result")
