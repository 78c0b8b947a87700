"""Rules for metadata in queries: __database, __table, __es and __ts of a row's message.

A row stays in its table, so __database and __table are the same for all of its changes. The times
of a message are not: the -U of an update has the time of the update, and would retract a value that
no group has. With `dedupe: pk` the job retracts the last image of a row as it was stored, so there
they are the times of the message that last changed the row.
"""

from __future__ import annotations

from collections.abc import Iterable

from jobs.core.plan.tree import Column
from schemas.spec.job import JobSpec
from schemas.spec.source import CONSTANT_METADATA, FORMATS_WITHOUT_TABLES, METADATA_TYPES
from schemas.types.sql_types import SqlType


def metadata_columns(spec: JobSpec) -> dict[str, SqlType]:
    """Return the metadata that a query may name; a declared column of the same name is no such."""
    return {name: kind for name, kind in METADATA_TYPES.items() if name not in spec.columns}


def metadata_problem(spec: JobSpec, used: Iterable[Column]) -> tuple[str, str] | None:
    """Return a metadata column that the query may not use, with the reason; None if all is well."""
    offered, format = metadata_columns(spec), spec.source.format
    for name in (column.name for column in used if column.name in offered):
        if format in FORMATS_WITHOUT_TABLES:
            return name, f"`{name}` is metadata that {format} messages do not have"
        if name in CONSTANT_METADATA:
            continue
        if spec.dedupe is None:
            return name, (
                f"`{name}` is the time of a message, and an update retracts its row in another "
                "message, with another time; use a column of the row, or dedupe: pk, which "
                "retracts a row with the time it had"
            )
    return None
