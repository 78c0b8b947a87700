"""The files of one view in a job's table, laid out like a table with one query."""

from __future__ import annotations

from typing import NamedTuple

from jobs.core.plan.tree import Plan
from schemas.table.object_path import TablePath


class Subtable(NamedTuple):
    """What maintenance merges and cleans on its own; "" has the files that all views share."""

    view: str
    plan: Plan
    root: TablePath
