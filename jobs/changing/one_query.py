"""Refuse changes of a job with several views, which the commands here do not know yet."""

from __future__ import annotations

from schemas.spec.file import load_spec
from schemas.table.places import JobDirectory


class SeveralViews(Exception):
    """The command changes a job with one query, and this one has several views."""


def require_one_query(place: JobDirectory, what: str) -> None:
    """Raise SeveralViews unless the job has one query; `what` names the command."""
    views = load_spec(place.spec).views if place.spec.exists() else None
    if place.view or views:
        raise SeveralViews(
            f"{what} works on jobs with one query, and {place.name!r} has several views; give a "
            "job with other views a new name"
        )
