"""Spark as we start it, and what our tasks can say through it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyarrow as pa
import pytest

from jobs.core.fold.laws import BrokenLaw
from jobs.edge.spark.task_errors import collect_rows, errors_by_code
from schemas.table.parquet_file import TableDamaged, TableFileGone, rows_in
from tests.support.spark_rpc import UNKNOWN_CLASS, answer_to_stranger, listening_ports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_options_of_whoever_runs_it_reach_the_jvm(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    running = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    wanted = os.environ["RETALLY_JAVA_OPTIONS"].split()
    assert wanted
    assert set(wanted) <= set(running.getInputArguments())


@pytest.mark.slow
def test_the_driver_makes_no_object_of_what_a_stranger_sends(spark: SparkSession) -> None:
    answers = [answer_to_stranger(port) for port in listening_ports(psutil.Process())]
    assert any(b"Expected SaslMessage" in answer for answer in answers), "the frame is Spark's"
    assert not any(UNKNOWN_CLASS.encode() in answer for answer in answers)


@pytest.mark.parametrize("said", [TableDamaged("items is damaged"), BrokenLaw("1 is not 2")])
def test_what_a_task_refuses_for_good_is_raised_as_itself(
    spark: SparkSession, said: Exception
) -> None:
    def refuse(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with errors_by_code():
            raise said
        yield from ()

    with pytest.raises(type(said), match=str(said)):
        collect_rows(spark.range(1).mapInArrow(refuse, "id long"))


def test_a_file_that_a_task_misses_is_one_that_the_table_has_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "state.parquet"

    def read(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with errors_by_code():
            yield from rows_in(path).to_batches()

    with pytest.raises(TableFileGone, match=rf"{path.name} is gone; restore it from a backup"):
        collect_rows(spark.range(1).mapInArrow(read, "id long"))
