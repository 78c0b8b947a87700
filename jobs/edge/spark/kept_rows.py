"""Keep rows in Spark's memory while they are read several times.

    one JVM for a job       persist ──► read ──► unpersist
    one JVM for many jobs   the same; of a job that was killed before, the owner of the JVM does it

Spark's cache belongs to the JVM, not to a session. So what a killed job leaves in it would stay as
long as the other jobs run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession


class LeasedSession(SparkSession):
    """A session of a JVM that jobs share."""

    kept: Any = None  # the owner's queue of the frames that this job keeps


@contextmanager
def keep_rows(frame: DataFrame) -> Iterator[None]:
    """Keep the rows of a frame in Spark's memory while the body runs."""
    session = frame.sparkSession
    kept = session.kept if isinstance(session, LeasedSession) else None
    if kept is not None:  # before they are there: the next moment may be that of the kill
        kept.add(frame._jdf)
    frame.persist()
    try:
        yield
    finally:
        frame.unpersist()
        if kept is not None:
            kept.remove(frame._jdf)
