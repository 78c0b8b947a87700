"""Paths: the files of the service and its jobs under the data directory (see docs/rest.md).

DIR/jobs/<name>/        the files of a job, see schemas.directory.paths
DIR/service/            the files of the service: register, tokens, specs, logs, results indexes
DIR/service/readers/    indexes and sessions of each service that does not lead
"""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from schemas.directory.paths import JobDirectory, discard
from schemas.table.object_path import TABLES_VARIABLE

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobPaths(JobDirectory):
    """The paths of one job, with the files that the service keeps for it."""

    reader: str = ""  # the service that reads, if it does not lead

    @property
    def service_files(self) -> Path:
        """The directory of the service's files for the job."""
        return self.data / "service" / "jobs" / self.name

    @property
    def run_spec(self) -> Path:
        """The spec that the job is started with."""
        return self.service_files / "spec.yaml"

    @property
    def log(self) -> Path:
        return self.service_files / "log"

    @property
    def own_files(self) -> Path:
        """The directory of what this service knows of the job's table."""
        home = ServicePaths(self.data, self.reader).own
        return home / "jobs" / self.name

    @property
    def index(self) -> Path:
        return self.own_files / (f"index-{self.view}" if self.view else "index")

    @property
    def history(self) -> Path:
        """The newest epochs, for the pages of a job or a view."""
        return self.own_files / (f"history-{self.view}.json" if self.view else "history.json")

    def list_indexed_views(self) -> set[str]:
        """Return the views that have an index or a history, also dropped ones."""
        indexes = (path.name.removeprefix("index") for path in self.own_files.glob("index*"))
        histories = (
            path.stem.removeprefix("history") for path in self.own_files.glob("history*.json")
        )
        return {name.removeprefix("-") for name in (*indexes, *histories)}

    def discard_index(self) -> None:
        """Remove the index and the history of the view."""
        shutil.rmtree(self.index, ignore_errors=True)
        self.history.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class ServicePaths:
    data: Path
    reader: str = ""  # of a service that does not lead

    @property
    def home(self) -> Path:
        return self.data / "service"

    @property
    def own(self) -> Path:
        """The files that no other service writes."""
        return self.home / "readers" / self.reader if self.reader else self.home

    @property
    def register(self) -> Path:
        return self.home / "register.sqlite"

    @property
    def tokens(self) -> Path:
        return self.home / "tokens.json"

    @property
    def lock(self) -> Path:
        return self.home / "lock"

    @property
    def trash(self) -> Path:
        """Deleted data until it is removed, also if the service is killed meanwhile."""
        return self.home / "trash"

    def job(self, name: str) -> JobPaths:
        return JobPaths(self.data, name, reader=self.reader)


def hide_paths(text: str, data: Path) -> str:
    """Return a text that every user may see, without the places of this service's files.

    Hide first, then cut: the start of a path that was cut would not be found.
    """
    tables = os.environ.get(TABLES_VARIABLE, "").rstrip("/")
    text = text.replace(tables, "TABLES") if tables else text
    return text.replace(str(data), "DIR")


def try_discard(path: Path) -> None:
    """Remove data from the trash; if that fails, the next start of the service tries again."""
    try:
        discard(path)
    except OSError as error:
        log.warning("cannot remove a deleted table; the next start tries again: %s", error)
