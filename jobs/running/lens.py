"""Lens: a part of a table that looks like a table with one query."""

from __future__ import annotations

from typing import NamedTuple

from jobs.core.plan.tree import Plan
from schemas.table.object_path import TablePath


class Lens(NamedTuple):
    """A view for the maintenance of a table; "" has the files that all views share."""

    view: str
    plan: Plan
    root: TablePath
