"""The Spark session of a job: of a JVM of its own, or of one that jobs share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from jobs.edge.spark.driver_lease import lease_session
from jobs.edge.spark.session import session
from jobs.edge.spark.spark_failure import detach


@contextmanager
def open_session(
    name: str, data: Path, master: str, jobs_max: int, *, delta: bool
) -> Iterator[SparkSession]:
    """Yield a session; more than one of `jobs_max` jobs of the data directory share a JVM.

    A failure of Spark in the body gets its text while the JVM is there.
    """
    opened = lease_session(data, master, jobs_max) if jobs_max > 1 else _own(name, master, delta)
    with opened as spark:
        try:
            yield spark
        except Exception as error:
            detached = detach(error)
            if detached is error:
                raise
            raise detached from None


@contextmanager
def _own(name: str, master: str, delta: bool) -> Iterator[SparkSession]:
    spark = session(name, master, delta=delta)
    try:
        yield spark
    finally:
        spark.stop()
