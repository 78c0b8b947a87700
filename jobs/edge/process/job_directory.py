"""Find the directory of a job that has run, by the job's name (see schemas.directory.paths)."""

from __future__ import annotations

import difflib
from pathlib import Path

from schemas.directory.paths import JobDirectory

__all__ = ["JobDirectory", "UnknownJob", "find_job", "find_view", "list_jobs", "list_views"]


class UnknownJob(LookupError):
    """There is no such job in this data directory."""


def find_job(data: Path, name: str) -> JobDirectory:
    """Return the directory of a job that has run; raise UnknownJob with the names of others."""
    paths = JobDirectory(data.absolute(), name)
    known = list_jobs(data)
    if name in known:
        return paths
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        hint = f"did you mean {near[0]!r}?"
    elif known:
        hint = f"known: {', '.join(known)}"
    else:
        hint = "no job has run there; check --data"
    raise UnknownJob(f"there is no job {name!r} in {data}; {hint}")


def find_view(paths: JobDirectory, view: str) -> JobDirectory:
    """Return the paths of a view; raise UnknownJob with the names of others."""
    if not view or paths.at_view(view).spec.exists():
        return paths.at_view(view)
    known = ", ".join(list_views(paths)) or "the job has none"
    raise UnknownJob(f"job {paths.name!r} has no view {view!r}; known: {known}")


def list_views(paths: JobDirectory) -> list[str]:
    """Return the names of the views of a job that has run."""
    return sorted(path.stem for path in paths.view_specs.glob("*.yaml"))


def list_jobs(data: Path) -> list[str]:
    """Return the names of the jobs that have a table and a spec."""
    names = [spec.parent.name for spec in (data / "jobs").glob("*/spec.yaml")]
    return sorted(name for name in names if JobDirectory(data, name).has_table)
