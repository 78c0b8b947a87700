"""The epochs of a snapshot's parts, in one task of the test's process: no Spark, no Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import pyarrow as pa
import pytest

from jobs.core.fold.state import Key
from jobs.core.job.views import plans_of
from jobs.core.plan.tree import Column
from jobs.core.values.change import Row
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.kafka.source import SourceChanged
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.rows.snapshot_columns import SnapshotColumn, SnapshotForm
from jobs.edge.table.job_specs import write_specs
from jobs.edge.table.reading import TableReader
from jobs.running import snapshot as running
from jobs.running.clock import JobClock
from jobs.running.failure import SpecMisfit
from jobs.running.job_table import open_table
from jobs.running.outcome import InputRefused
from jobs.running.pipeline import Pipeline, make_pipeline
from schemas.spec.connections import Connections
from schemas.spec.file import load_spec
from schemas.table.epoch import EpochRow, TopicIdentity
from schemas.table.snapshot import SnapshotPlan
from tests.support.jobs.tasks_here import Planned

QUERY = "SELECT name, SUM(1 / cnt) AS total, COUNT(*) AS n FROM t GROUP BY name"
PARTS: list[list[tuple[str | None, str | None, str | None]]] = [
    [("1", "a", "1"), ("2", "b", "2")],
    [],
    [("3", "a", "2"), ("4", None, "1"), ("1", "b", "4")],  # a row that came to this part too
]
IDENTITY = {"t": TopicIdentity("id", 2)}


class Admin:
    """A topic with some records."""

    first: ClassVar = {0: 0, 1: 0}
    policy: ClassVar = "delete"

    def cleanup_policy(self, _topic: str) -> str:
        return self.policy

    def beginning_offsets(self, _topic: str) -> dict[int, int]:
        return self.first

    def end_offsets(self, _topic: str) -> dict[int, int]:
        return {0: 5, 1: 7}


@dataclass
class Sent:
    """An RDD of one partition, as far as a stage needs it."""

    rows: Iterable[Any]

    def mapPartitions(self, task: Any) -> Planned:
        return Planned(lambda: task(self.rows))


@dataclass
class Rows:
    rows: list[tuple[str | None, str | None, str | None]]
    columns: tuple[SnapshotColumn, ...]
    plan: SnapshotPlan
    tasks: int = 1

    def run(self, task: Callable[[Iterator[pa.RecordBatch]], Any], _schema: str) -> Sent:
        names = [each.column.name for each in self.columns]
        places = [("id", "name", "cnt").index(name) for name in names]
        arrays = [pa.array([row[at] for row in self.rows], pa.string()) for at in places]
        given = task(iter([pa.RecordBatch.from_arrays(arrays, names)]))
        return Sent((text,) for batch in given for text in batch["parcels"].to_pylist())


class Source:
    """Gives the parts, as texts."""

    parts = PARTS

    def __init__(
        self, _spark: Any, _snapshot: Any, columns: tuple[Column, ...], *_others: Any
    ) -> None:
        self._columns = tuple(SnapshotColumn(each, SnapshotForm.SOURCE_TEXT) for each in columns)

    def make_plan(self) -> SnapshotPlan:
        return SnapshotPlan(parts=len(self.parts))

    def open(self, plan: SnapshotPlan, part: int) -> Rows:
        return Rows(self.parts[part], self._columns, plan)


@dataclass
class Job:
    home: Path
    format: str = "debezium-json"

    def __post_init__(self) -> None:
        self.spec = load_spec(
            {
                "name": "loaded",
                "source": {
                    "topic": "t",
                    "format": self.format,
                    "snapshot": {"csv": "/x"},
                    "start": "latest",
                },
                "columns": {"id": "BIGINT", "name": "STRING", "cnt": "INT"},
                "primary_key": ["id"],
                "dedupe": "pk",
                "query": QUERY,
                "state": {"buckets": 4},
            }
        )
        self.paths = JobDirectory(self.home, "loaded")

    def start(self) -> Pipeline:
        plans, admin = plans_of(self.spec), cast("KafkaAdmin", Admin())
        table, newest = open_table(self.spec, plans, self.paths, admin, IDENTITY)
        running.require_same_snapshots(self.spec, newest)
        write_specs(self.spec, self.paths)
        clock = JobClock(self.spec, {"t": 2}, newest, read_log_ends=dict)
        nothing: Any = None
        return make_pipeline(
            self.spec,
            plans,
            self.paths,
            table,
            newest,
            spark=nothing,
            connections={"default": {}},
            cores=1,
            on_commit=lambda _row, _files: None,
            clock=clock,
        )

    def read(self, parts: int = 99) -> tuple[list[EpochRow], list[str]]:
        """Read so many parts as a new process; return all epochs of parts, and the reports."""
        left, reports = [parts], list[str]()

        def between() -> None:
            left[0] -= 1

        running.read_snapshots(
            self.start(),
            Connections({}),
            is_stopping=lambda: left[0] <= 0,
            report=reports.append,
            between=between,
        )
        rows = TableReader.open(self.paths).kept_epochs
        return [row for row in rows if row.counts.snapshot_part is not None], reports

    def results(self) -> dict[Key, Row]:
        return dict(TableReader.open(self.paths).results())


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(running, "SnapshotSource", Source)
    return Job(tmp_path)


def test_each_part_is_an_epoch_at_the_offsets_of_the_start(job: Job) -> None:
    rows, reports = job.read()
    parts = [row.counts.snapshot_part for row in rows]
    assert [(each.part, each.parts, each.rows) for each in parts if each] == [
        (1, 3, 2),
        (2, 3, 0),
        (3, 3, 3),
    ]
    assert [row.offsets for row in rows] == [{"t": {"0": 5, "1": 7}}] * 3
    assert rows[-1].counts.snapshot[""].done and rows[-1].counts.snapshot[""].rows == 5
    assert (rows[-1].counts.images, rows[-1].counts.read) == (4, 0)
    assert {key: row[-1] for key, row in job.results().items()} == {
        ("a",): 1,
        ("b",): 2,
        (None,): 1,
    }
    assert reports[0] == "snapshot, finding its parts"
    assert reports[1].startswith("snapshot, 0 of 3 parts read, 0 rows")
    assert reports[-1].startswith("snapshot, 2 of 3 parts read, 2 rows, ")


def test_a_start_reads_the_parts_that_no_epoch_has(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = job.read(1)
    assert len(first) == 1
    monkeypatch.setattr(Source, "make_plan", lambda _: pytest.fail("the plan is in the epochs"))
    rows, _ = job.read()
    assert len(rows) == 3 and rows[0] == first[0]
    assert job.read() == (rows, []), "a snapshot is read once"


def test_a_row_that_fails_stops_before_its_part_is_committed(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [PARTS[0], [("9", "a", "0")]]
    monkeypatch.setattr(Source, "parts", broken)
    with pytest.raises(InputRefused, match=r"the row is .*cnt = 0"):
        job.read()
    rows, _ = job.read(0)
    assert len(rows) == 1
    monkeypatch.setattr(Source, "parts", [PARTS[0], [("9", "a", "x")]])
    with pytest.raises(InputRefused, match="the snapshot: column cnt: "):
        job.read()


def test_a_snapshot_stays_in_the_spec_until_it_is_read_and_comes_with_the_first_start_only(
    job: Job,
) -> None:
    job.read(1)
    whole, document = job.spec, job.spec.document()
    del document["source"]["snapshot"]
    job.spec = load_spec(document)
    with pytest.raises(SpecMisfit, match=r"source.snapshot is not read to its end \(1 parts\)"):
        job.read()
    document["source"]["snapshot"] = {"parquet": "/x"}
    job.spec = load_spec(document)
    with pytest.raises(SpecMisfit, match=r"was csv /x when its first part was read, and 1 of 3"):
        job.read()
    del document["source"]["snapshot"]
    job.spec = whole
    job.read()
    job.spec = load_spec(document)
    job.read()
    other = Job(job.home / "other")
    other.spec = load_spec(document)
    other.read()
    other.spec = whole
    with pytest.raises(SpecMisfit, match=r"has started without source\.snapshot"):
        other.read()


@pytest.mark.parametrize("parts", [0, 1, 3])
def test_a_topic_that_has_lost_the_offsets_behind_a_snapshot_is_refused_with_what_to_do(
    job: Job, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    job.read(parts)
    newest, admin = job.start().newest, cast("KafkaAdmin", Admin())
    assert running.find_starts(admin, newest, IDENTITY) == {"t": {"0": 5, "1": 7}}
    monkeypatch.setattr(Admin, "first", {0: 0, 1: 8})
    with pytest.raises(SourceChanged, match=r"t/1: .*before 8; 1 off.*; raise its retention above"):
        running.find_starts(admin, newest, IDENTITY)


def test_files_that_another_version_divided_are_refused_with_this_reason(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = SnapshotPlan(parts=3, pieces=3, digest="a")
    monkeypatch.setattr(Source, "make_plan", lambda _: plan)
    job.read(1)
    with pytest.raises(SpecMisfit, match=r"planned by another version of retally.*; finish it"):
        job.read()


@pytest.mark.parametrize("policy", ["compact", "compact,delete", ""])
def test_a_compacted_topic_is_refused_at_the_first_start_unless_its_tombstones_are_applied(
    job: Job, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    monkeypatch.setattr(Admin, "policy", policy)
    reason = (
        f"policy={policy}: .*delete, which debezium-json needs" if policy else "DescribeConfigs"
    )
    for _ in range(2):
        with pytest.raises(SpecMisfit, match=reason):
            job.start()
    assert not job.paths.has_table
    Job(job.home / "upserts", "upsert-json").read()
    monkeypatch.setattr(Admin, "policy", "delete")
    job.read(1)
    monkeypatch.setattr(Admin, "policy", policy)
    job.read()
