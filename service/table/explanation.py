"""Explain one group of a job's table, or answer that there is no such group."""

from __future__ import annotations

from typing import Any

from jobs.table.group import GroupReader, UnknownGroup
from service.problems import Problem


def explain_group(reader: GroupReader) -> dict[str, Any]:
    """Return the explanation of a group as a document."""
    try:
        return reader.explain()
    except UnknownGroup as error:
        raise Problem("group-unknown", 404, str(error)) from None
