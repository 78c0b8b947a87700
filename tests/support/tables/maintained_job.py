"""A job whose table is maintained, without Spark and Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession

from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.state.bucket_states import hot_state_of
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.reading import TableReader
from jobs.reading.files import LiveFile, live_files, open_table
from jobs.running.clock import JobClock
from jobs.running.maintenance import Maintenance
from jobs.running.pipeline import Pipeline
from schemas.spec.file import load_spec, spec_text
from schemas.types.moments import now_ms
from tests.support.tables.folded_table import BUCKETS, COLUMNS, QUERY, FoldedTable, a_plan, insert

HOUR_MS = 3_600_000


class MaintainedJob:
    """A job's table, pipeline and maintenance, as in a running job."""

    def __init__(self, data: Path, *, sink: bool = False, began_hours_ago: float = 0) -> None:
        self.place = JobDirectory(data, "items")
        written: dict[str, Any] = {
            "name": "items",
            "source": {"topic": "t"},
            "columns": {name: str(kind) for name, kind in COLUMNS.items()},
            "query": QUERY,
            "state": {"buckets": BUCKETS},
            "retention": "1h",
        }
        if sink:
            written["sink"] = {"topic": "changes"}
        self.spec = load_spec(written)
        self.place.home.mkdir(parents=True, exist_ok=True)
        self.place.spec.write_text(spec_text(self.spec))
        start = hours_ago(began_hours_ago)
        self.made = FoldedTable(self.place.table, a_plan(), committed_at=start)
        self.begin()

    def begin(self) -> None:
        """Create pipeline and maintenance, as the start of a job does."""
        table = EpochTable.open(self.place.table, self.made.layout)
        self.made.table = table
        newest = table.newest()
        assert newest is not None
        self.pipeline = Pipeline(
            self.spec,
            {"": self.made.plan},
            table,
            newest,
            spark=cast(SparkSession, None),
            connections={},  # no epoch here has data
            caches={"": hot_state_of(self.place, table.handle)},
            cores=1,
            on_commit=lambda row, files: None,
            clock=JobClock(self.spec, {}, newest, read_log_ends=dict),
        )
        self.maintenance = Maintenance(self.pipeline, self.place.home)

    def epochs(self, count: int, **fields: Any) -> None:
        for _ in range(count):
            number = self.made.newest.epoch + 1
            rows = insert("a", number) + insert(f"g{number % 7}", number)
            self.pipeline.newest = self.made.epoch(rows, **fields)

    def live(self, *parts: str) -> list[LiveFile]:
        files = live_files(open_table(self.place.table))
        return [file for file in files if not parts or file.part in parts]

    def work_until(
        self, done: Callable[[], bool], published: int | None = None, seconds: float = 60
    ) -> None:
        end = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < end, "it took too long"
            self.maintenance.work(published)
            time.sleep(0.05)

    def merged(self, part: str) -> bool:
        return any(file.tier == 1 for file in self.live(part))

    def results(self) -> Any:
        return TableReader.open(self.place).results()


def hours_ago(hours: float) -> int:
    return int((now_ms() - hours * HOUR_MS) * 1_000)
