"""Raise an exception of our own code in a task again in the driver, with its class.

task:   TableDamaged ──► TaskError: retally-task-error:{"kind": .., "reason": ..}
                              │  Spark passes on the text of an exception, not the object
driver: TableDamaged ◄────────┘
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from jobs.core.aggregates.operator_class import AggregateFailed
from jobs.core.fold.laws import BrokenLaw
from jobs.core.time.custom_generator import GeneratorFailed
from jobs.edge.spark.spark_failure import SparkFailed, detach
from jobs.edge.state.catch_up import ZombieTask
from jobs.topics.schema_registry import RegistryUnavailable
from schemas.table.parquet_file import TableDamaged, TableFileGone

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame

_MARK = "retally-task-error:"
_KNOWN = (
    *(TableFileGone, TableDamaged, BrokenLaw, ZombieTask),
    *(AggregateFailed, GeneratorFailed, RegistryUnavailable),
)
_BY_NAME = {kind.__name__: kind for kind in _KNOWN}


class TaskError(Exception):
    """An exception of _KNOWN as a text that Spark passes on."""


class _Content(msgspec.Struct, frozen=True):
    kind: str
    reason: str


@contextmanager
def errors_by_code() -> Iterator[None]:
    """Raise an exception of _KNOWN as a TaskError; each task runs its body in this context."""
    try:
        yield
    except _KNOWN as error:
        content = msgspec.json.encode(_Content(type(error).__name__, str(error))).decode()
        raise TaskError(f"{_MARK}{content}") from error


def collect_rows(frame: DataFrame | RDD[Any]) -> list[Any]:
    """Collect the rows of a frame; raise a task's TaskError as the exception that it was.

    Other failures of a task are raised as SparkFailed.
    """
    try:
        return frame.collect()
    except Exception as error:
        detached = detach(error)
        if isinstance(detached, SparkFailed) and (known := _known_error(detached)):
            raise known from detached
        raise detached from None


def _known_error(error: SparkFailed) -> Exception | None:
    """Return the first exception of _KNOWN in the text of Spark's exception."""
    for line in "\n".join(error.__notes__).splitlines():
        _, mark, content = line.partition(_MARK)
        if not mark:
            continue
        try:
            found = msgspec.json.decode(content, type=_Content)
        except msgspec.DecodeError:  # another text quotes the mark
            continue
        if found.kind in _BY_NAME:
            return _BY_NAME[found.kind](found.reason)
    return None
