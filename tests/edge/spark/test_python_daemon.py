"""Python workers: what they import, who shares them, and what they do between tasks."""

from __future__ import annotations

import gc
import os
import sys
import weakref
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from jobs.edge.spark import python_daemon
from schemas.limits import TASKS_BETWEEN_GC_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Knot:
    """Garbage that only the cycle collector finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Knot]]:
    """What each task leaves behind when it ends."""
    left: list[Knot] = []

    def task(_socket: object, _authenticated: bool) -> int:
        left.clear()
        return 0

    monkeypatch.setattr(python_daemon, "_worker", task)
    monkeypatch.setattr(python_daemon, "_tasks", count(1))
    gc.collect()
    yield left
    gc.unfreeze()
    gc.collect()


def _end_task() -> None:
    """As pyspark's loop does it: the task, then a search for cycles."""
    assert python_daemon.worker(None, True) == 0  # type: ignore[arg-type]
    gc.collect()


def test_what_a_worker_remembers_is_not_searched_after_every_task(tasks: list[Knot]) -> None:
    remembered = [[number] for number in range(1_000)]
    _end_task()
    assert gc.get_freeze_count() > len(remembered)
    assert not any(each is remembered for each in gc.get_objects())


def test_cycles_that_tasks_leave_are_found_after_so_many_of_them(tasks: list[Knot]) -> None:
    tasks.append(Knot())
    left = weakref.ref(tasks[0])
    for _ in range(TASKS_BETWEEN_GC_MAX):
        _end_task()
    assert left() is None


def test_small_and_large_epochs_share_the_workers(spark: SparkSession) -> None:
    """An RDD's tasks and those of SQL would have a daemon each if their environments differed."""

    def find_daemon(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"id": pa.array([os.getppid()])})

    of_sql = spark.range(1).mapInArrow(find_daemon, "id long").collect()
    of_rdd = spark.sparkContext.parallelize([0], 1).map(lambda _: os.getppid()).collect()
    assert of_rdd == [of_sql[0].id]


def test_workers_import_the_installed_pyspark(spark: SparkSession) -> None:
    def find_modules(_: int) -> list[str | None]:
        return [sys.modules[name].__file__ for name in ("pyspark", "py4j")]

    (files,) = spark.sparkContext.parallelize([0], 1).map(find_modules).collect()
    assert [".zip" in str(file) for file in files] == [False, False]


def test_where_pyspark_is_only_in_an_archive_it_stays(tmp_path: Path) -> None:
    archives = [str(tmp_path / name) for name in ("pyspark.zip", "py4j-1.2-src.zip")]
    installed, empty = tmp_path / "installed", tmp_path / "empty"
    (installed / "pyspark").mkdir(parents=True)
    (installed / "pyspark" / "__init__.py").touch()
    assert python_daemon.leave_out_archives([*archives, str(installed)]) == [str(installed)]
    assert python_daemon.leave_out_archives([*archives, str(empty)]) == [*archives, str(empty)]
