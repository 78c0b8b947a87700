"""Timers in processing time: a plain recomputation at the time in an epoch's row is its results."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from jobs.edge.table.file_writer import AddedFile
from schemas.spec.file import load_spec
from schemas.table.epoch import EpochRow
from tests.support.jobs.epochs_by_hand import EpochsByHand
from tests.support.jobs.operator_classes import ALLOWED, declare
from tests.support.jobs.tasks_here import TasksHere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GAP = 10
NO_BROKER = "localhost:1"  # who reads only files needs none
QUERY = f"SELECT k, IDLE(at, {GAP}) AS idle FROM t GROUP BY k"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETALLY_AGGREGATES", ALLOWED)
    monkeypatch.setenv("RETALLY_FILES", str(tmp_path))
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def open_job(directory: Path, now_ms: int, ttl: str = "0s") -> EpochsByHand:
    spec: dict[str, Any] = {
        "name": "idle",
        "source": {"files": {"path": str(directory), "every": "200ms"}, "format": "json"},
        "columns": {"k": "STRING", "at": "BIGINT"},
        "functions": {"IDLE": declare("Burst", "BIGINT", timers="processing")},
        "query": QUERY,
        "minibatch": {"latency": "10ms"},
        "state": {"buckets": 4, "ttl": ttl},
    }
    spark = cast("SparkSession", TasksHere())
    return EpochsByHand(spark, NO_BROKER, directory.parent, load_spec(spec), now_ms)


def burst_of(times: list[int], until: int) -> int | None:
    """Return the rows of the last burst that a pause has ended by a time."""
    ended, rows, last = None, 0, None
    for at in [*sorted(times), 1 << 60]:
        if last is not None and at > last + GAP:
            ended = rows if last + GAP <= until else ended
            rows = 0
        rows, last = rows + 1, at
    return ended


@pytest.mark.parametrize("seed", range(3))
def test_an_epoch_has_the_results_of_the_processing_time_in_its_row(
    seed: int, directory: Path
) -> None:
    rng = random.Random(seed)
    job = open_job(directory, 1_000)
    read: dict[str, list[int]] = {}
    for number in range(14):
        step = rng.choice(["rows", "rows", "late", "time", "restart"])
        if step == "restart":
            job.restart()
            continue
        if step == "time":
            job.time_epoch(rng.randint(1, 3 * GAP))
        else:
            assert job.now_ms is not None
            rows = [(k, job.now_ms + rng.randint(-20, 20)) for k in rng.sample("abc", 2)]
            lines = [json.dumps({"k": k, "at": at}) for k, at in rows]
            (directory / f"{number}.json").write_text("\n".join(lines) + "\n")
            for k, at in rows:
                read.setdefault(k, []).append(at)
            if step == "late":  # timers become due after the driver has looked
                job.now_ms += GAP
                ends = job.ends()
                job.pipeline.logs = job.logs
                job.pipeline._run_up_to(ends)
            else:
                job.epoch()
        work = job.epochs()[-1].time.due_work
        assert work is not None
        expected = {(k,): (burst_of(times, work.now),) for k, times in read.items()}
        assert job.results() == expected, (step, work.now)
    assert any(value for (value,) in job.results().values())


def test_a_long_catch_up_fires_timers_between_its_parts(directory: Path) -> None:
    job = open_job(directory, 1_000, ttl="1s")
    lines = [json.dumps({"k": k, "at": 1_000}) for k in "abc"]
    (directory / "1.json").write_text("\n".join(lines) + "\n")

    def pass_time(row: EpochRow, _: Sequence[AddedFile]) -> None:
        assert job.now_ms is not None
        job.now_ms += 600 if row.kind == "data" else 0

    job.pipeline.on_commit = pass_time
    job.pipeline._size._records_max = 1
    job.pipeline._size.raise_slowly = lambda: None  # type: ignore[method-assign]
    job.epoch()
    assert [row.kind for row in job.epochs()].count("data") == 3
    assert set(job.results()) == {("c",)}, "it came 0.6 s ago, b 1.2 s ago"


def test_an_evolved_query_has_the_values_and_the_timers_of_before(directory: Path) -> None:
    job = open_job(directory, 1_000)
    (directory / "1.json").write_text('{"k":"a","at":900}\n{"k":"a","at":1100}\n')
    job.epoch()
    job.time_epoch()
    assert job.results() == {("a",): (1,)}
    evolved = QUERY.replace("FROM", ", COUNT(*) AS n FROM")
    job.evolve(load_spec(job.spec.document() | {"query": evolved}))
    assert job.results() == {("a",): (1, 2)}
    job.time_epoch(100)
    assert job.results() == {("a",): (1, 2)}
    job.time_epoch(GAP)
    assert job.results() == {("a",): (1, 2)}
    (directory / "2.json").write_text('{"k":"a","at":1105}\n')
    job.epoch()
    job.time_epoch(GAP)
    assert job.results() == {("a",): (2, 3)}
