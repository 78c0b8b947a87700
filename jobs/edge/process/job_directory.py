"""The directory of a job that has run, found by its name (see schemas.table.places)."""

from __future__ import annotations

import difflib
from pathlib import Path

from schemas.table.places import JobDirectory

__all__ = ["JobDirectory", "UnknownJob", "existing_job", "job_names"]


class UnknownJob(LookupError):
    """There is no such job in this data directory."""


def existing_job(data: Path, name: str) -> JobDirectory:
    """The directory of a job that has run, or UnknownJob with the names that are there."""
    place = JobDirectory(data.absolute(), name)
    known = job_names(data)
    if name in known:
        return place
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        hint = f"did you mean {near[0]!r}?"
    elif known:
        hint = f"known: {', '.join(known)}"
    else:
        hint = "no job has run there; is --data right?"
    raise UnknownJob(f"there is no job {name!r} in {data}; {hint}")


def job_names(data: Path) -> list[str]:
    """The jobs that have a table and a spec."""
    names = [spec.parent.name for spec in (data / "jobs").glob("*/spec.yaml")]
    return sorted(name for name in names if JobDirectory(data, name).begun)
