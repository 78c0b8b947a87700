"""The driver's own time for an epoch is bounded, with 1,000 ranges and 256 buckets."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession

from jobs.core.fold.program import Program
from jobs.core.homes import Placement
from jobs.core.job.views import plans_of
from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.epoch_files import TableLayout
from jobs.edge.table.file_writer import AddedFile, file_name
from jobs.edge.tasks.fold_inputs import FoldReport
from jobs.edge.tasks.outbox import Outbox, Unpack
from jobs.edge.tasks.range_report import RangeReport
from jobs.edge.tasks.stage_functions import EpochTask, ParcelTask, TaskChain, ViewsFold
from jobs.reading.parts import ACCUMULATORS, CHANGELOG, MULTISETS
from jobs.running import pipeline as of_pipeline
from jobs.running.clock import JobClock
from jobs.running.pipeline import Pipeline
from jobs.running.stages import Stages
from schemas.spec.file import load_spec
from schemas.table.epoch import TopicIdentity
from tests.support.epoch_rows import epoch_row

PARTITIONS, BUCKETS, TASKS, RECORDS = 1_000, 256, 64, 600
SECONDS_MAX = 0.1  # of a processor


class Reported:
    """The rows that Spark would collect: a report of each range, and of each fold task."""

    def __init__(self, reports: list[bytes]) -> None:
        self._reports = reports

    def collect(self) -> list[bytes]:
        return self._reports


class StagesWithoutSpark(Stages):
    """Pickles the tasks as pyspark does, and has their reports at once."""

    def plan(
        self,
        ranges: Sequence[OffsetRange],
        decode: ParcelTask,
        between: Sequence[Sequence[Any]],
        fold: ViewsFold,
        placement: Placement,
    ) -> Any:
        pickler: Any = CloudPickleSerializer()
        decoding = Outbox(TaskChain((decode,)), placement.tasks, None, 1)
        for task in (decoding, EpochTask(TaskChain((Unpack(),)), fold)):
            assert pickler.dumps(task)
        began = time.process_time()
        reports = [report_range(number, each) for number, each in enumerate(ranges)]
        own = fold.folds[0].attempt
        reports += [
            report_fold(own.epoch, own.uuid, task, len(ranges) * RECORDS)
            for task in range(placement.tasks)
        ]
        self.not_the_drivers = time.process_time() - began
        return Reported(reports)

    __slots__ = ("not_the_drivers",)


def report_range(number: int, read: OffsetRange) -> bytes:
    report = RangeReport(number=number, start=read.start, topic=read.topic)
    report.partition, report.shipped = read.partition, {0: RECORDS}
    report.read = report.decoded = report.rows = RECORDS
    return msgspec.json.encode(report)


def report_fold(epoch: int, uuid: str, task: int, rows: int) -> bytes:
    statistics = {"numRecords": 9, "minValues": {"epoch": epoch}, "maxValues": {"epoch": epoch}}
    files = [
        AddedFile(file_name(part, epoch, uuid, f"f{task}"), part, 9, 99, json.dumps(statistics))
        for part in (CHANGELOG, ACCUMULATORS, MULTISETS)
    ]
    arrived = rows // TASKS + (rows % TASKS if task == 0 else 0)
    return msgspec.json.encode(FoldReport(task=task, arrived=arrived, counted=arrived, files=files))


def test_planning_and_commit_of_a_large_epoch_take_less_than_100_ms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_pipeline, "Stages", StagesWithoutSpark)
    spec = load_spec(
        {
            "name": "large",
            "source": {"topic": "t"},
            "columns": {"name": "STRING", "v": "BIGINT"},
            "query": "SELECT name, SUM(v) AS s, MAX(v) AS top FROM t GROUP BY name",
            "state": {"buckets": BUCKETS},
        }
    )
    plans = plans_of(spec)
    table = EpochTable.create(tmp_path / "table", TableLayout(Program(plans[""])))
    topics = {"t": TopicIdentity("id", PARTITIONS)}
    starts = {str(partition): 0 for partition in range(PARTITIONS)}
    newest = epoch_row(0, plans[""], kind="start", offsets={"t": starts}, topics=topics)
    table.commit_epoch(newest, ())
    pipeline = Pipeline(
        spec,
        plans,
        table,
        newest,
        spark=cast(SparkSession, None),
        connections={"default": {}},
        caches={"": tmp_path / "cache"},
        cores=TASKS,
        on_commit=lambda _row, _files: None,
        clock=JobClock(spec, {"t": PARTITIONS}, newest, read_log_ends=dict),
    )
    pipeline.topics = topics
    stages = pipeline.stages
    assert isinstance(stages, StagesWithoutSpark)
    spent = []
    for number in range(1, 12):
        ends = {"t": dict.fromkeys(starts, number * RECORDS)}
        began = time.process_time()
        row = pipeline.run_epoch(ends)
        spent.append(time.process_time() - began - stages.not_the_drivers)
        assert row.counts.read == row.counts.rows_folded == PARTITIONS * RECORDS
    assert len(row.files[CHANGELOG]) == TASKS
    assert statistics.median(spent) < SECONDS_MAX, spent
