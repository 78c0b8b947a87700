"""The snapshot of a table: rows a second, compared with how fast Spark alone reads its files.

    Parquet files ─┬─► Spark, which drops the rows
                   └─► a job: Spark's rows ─► images by key ─► groups ─► one commit a part

Both read the same three columns with Spark's settings of a job. The row groups are as large as
those of DuckDB. The rate of the job is that from its first part to its last one.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from bench.frame import MIB, Bench, Figure
from bench.generator import Truth
from bench.outcome import BenchFailed, check
from bench.product import RetallyJob
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.spark.job_session import open_session
from jobs.edge.table.reading import TableReader

TITLE = "snapshot"
MASTER = "local[2]"  # the default of `retally run`
FILE_ROWS, GROUP_ROWS = 1_000_000, 122_880
GROUPS = 180_000
ROUNDS = 3
SHARE_MIN = 0.5


def run(bench: Bench) -> None:
    if not bench.options.retally:
        return
    rows, topic = bench.options.groups, bench.new_topic("snapshot")
    directory = bench.directory / topic
    _write_rows(directory / "rows", rows)
    with bench.measuring(f"Spark: reading {rows:,} rows"):
        alone = rows / _read_alone(directory)
    snapshot = {"parquet": str(directory / "rows")}
    job = RetallyJob(
        name="snapshot",
        brokers=bench.brokers,
        topic=topic,
        directory=directory,
        overrides={
            "source": {"topic": topic, "snapshot": snapshot},
            "primary_key": ["id"],
            "dedupe": "pk",
            "sink": None,
            "mirror": "off",
        },
        flags=("--master", MASTER),
        environment={"RETALLY_FILES": str(directory)},
        published_ms=None,
    )
    with bench.measuring(f"retally: a snapshot of {rows:,} rows"):
        outcome = job.catch_up()
    reader = TableReader.open(JobDirectory(directory, job.name))
    results = {str(name): row for (name,), row in reader.results().items()}
    check("retally", results, _truth(directory / "rows"))  # type: ignore[arg-type]
    rate = _rate(reader)

    def add(what: str, value: float, unit: str, bound: str = "", holds: bool | None = None) -> None:
        bench.add(Figure(TITLE, "retally", what, value, unit, bound, holds))

    bench.add(Figure(TITLE, "Spark", "reads alone", alone, "rows/s"))
    add("rate", rate, "rows/s")
    add("whole run, start included", outcome.seconds, "s")
    add("memory, RssAnon at most", outcome.memory_bytes_max / MIB, "MiB")
    share = rate / alone
    add("rate, of that of Spark alone", share, "times", f">= {SHARE_MIN}", share >= SHARE_MIN)


def _write_rows(directory: Path, rows: int) -> None:
    """Write rows like those of the stream, with keys in no order."""
    directory.mkdir(parents=True)
    random = np.random.default_rng(7)
    keys = random.permutation(rows)
    for number, first in enumerate(range(0, rows, FILE_ROWS)):
        ids = keys[first : first + FILE_ROWS]
        groups = random.integers(0, GROUPS, len(ids)).astype(str)
        columns = {
            "id": ids,
            "name": np.char.add("product-", groups),
            "cnt": random.integers(-1_000, 1_000, len(ids)).astype(np.int32),
            "description": np.char.add("a product whose number is ", ids.astype(str)),
        }
        pq.write_table(
            pa.table(columns), directory / f"{number:04d}.parquet", row_group_size=GROUP_ROWS
        )


def _read_alone(directory: Path) -> float:
    """Return the seconds in which Spark reads the rows, once it is warm."""
    seconds = []
    with open_session("bench", directory, MASTER, 1, delta=False) as spark:
        frame = spark.read.parquet(str(directory / "rows")).select("id", "name", "cnt")
        for _ in range(ROUNDS):
            began = time.monotonic()
            frame.write.format("noop").mode("overwrite").save()
            seconds.append(time.monotonic() - began)
    return min(seconds[1:])


def _truth(directory: Path) -> Truth:
    """Return the results as Arrow computes them."""
    rows = ds.dataset(directory).to_table(["name", "cnt"])
    found = rows.group_by("name").aggregate([("cnt", each) for each in ("sum", "max", "count")])
    names, *values = (
        found[each].to_pylist() for each in ("name", "cnt_sum", "cnt_max", "cnt_count")
    )
    return dict(zip(names, zip(*values, strict=True), strict=True))


def _rate(reader: TableReader) -> float:
    first, *others = [row for row in reader.kept_epochs if row.counts.snapshot_part is not None]
    if not others:
        raise BenchFailed("the snapshot had one part; use more rows (--groups)")
    seconds = (others[-1].committed_at - first.committed_at) / 1e6
    return sum(row.counts.rows for row in others) / seconds
