"""Where things lie under the data directory, as the service sees it (docs/rest.md has the list).

DIR/jobs/<name>/        the job's own, see schemas.table.places
DIR/service/            the service's: registers, tokens, specs, logs, results indexes
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from schemas.table.places import JobDirectory, discard

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobPlaces(JobDirectory):
    """The places of one job, with what the service keeps of it."""

    @property
    def own(self) -> Path:
        return self.data / "service" / "jobs" / self.name

    @property
    def own_spec(self) -> Path:
        """The spec that the job is started with."""
        return self.own / "spec.yaml"

    @property
    def log(self) -> Path:
        return self.own / "log"

    @property
    def index(self) -> Path:
        return self.own / "index"


@dataclass(frozen=True, slots=True)
class ServicePlaces:
    data: Path

    @property
    def home(self) -> Path:
        return self.data / "service"

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
        """Where deleted data waits to be removed; a kill in between leaves it here."""
        return self.home / "trash"

    def job(self, name: str) -> JobPlaces:
        return JobPlaces(self.data, name)


def discarded(path: Path) -> None:
    """Remove what was moved away; what object storage does not let go of now, the next service
    finds in the trash."""
    try:
        discard(path)
    except OSError as error:
        log.warning("a table could not be removed, it is tried again at the next start: %s", error)
