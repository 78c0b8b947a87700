"""Explain one group of a job, for the command line."""

from __future__ import annotations

from typing import Any

from jobs.core.fold.state import Key
from jobs.edge.table.reading import TableReader
from jobs.table.group import GroupReader


def explain(table: TableReader, key: Key) -> dict[str, Any]:
    """Return why the values of a group are what they are; raise UnknownGroup if it never was."""
    reader = GroupReader(table, table.shape, key, table.spec.state.buckets)
    return {"job": table.paths.name, **reader.explain()}
