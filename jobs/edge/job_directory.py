"""Where the parts of a job lie under the data directory.

DIR/jobs/<name>/epochs        the table, the only truth
               /results       the mirror, if the spec asks for one
               /spec.yaml     the spec of the last run
               /savepoints    named epochs
               /lock          held by the one writer
DIR/cache/<name>              the hot state; may be deleted at any time
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path


class UnknownJob(LookupError):
    """There is no such job in this data directory."""


@dataclass(frozen=True, slots=True)
class JobDirectory:
    """The places of one job."""

    data: Path
    name: str

    @property
    def home(self) -> Path:
        return self.data / "jobs" / self.name

    @property
    def table(self) -> Path:
        return self.home / "epochs"

    @property
    def results(self) -> Path:
        return self.home / "results"

    @property
    def spec(self) -> Path:
        return self.home / "spec.yaml"

    @property
    def lock(self) -> Path:
        return self.home / "lock"

    @property
    def cache(self) -> Path:
        return self.data / "cache" / self.name


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
    specs = (data / "jobs").glob("*/spec.yaml")
    return sorted(spec.parent.name for spec in specs if (spec.parent / "epochs").is_dir())
