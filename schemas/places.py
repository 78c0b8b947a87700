"""Where the parts of a job lie under the data directory, for its writer and its readers alike.

DIR/jobs/<name>/epochs          the table, the only truth
               /results         the mirror, if the spec asks for one
               /spec.yaml       the spec of the last run
               /savepoints      named epochs
               /next            a job beside it, which reads its topic again for another query
               /replayed        messages of the quarantine that were sent again
               /failure.json    why the last run failed, if it did
               /lock            held by the one writer
DIR/cache/<name>                the hot state; may be deleted at any time
RETALLY_CACHE/<name>            where it is instead, if that is set: on a cluster, a disk of the
                                host's own, for the files are mapped into memory
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class JobDirectory:
    """The places of one job. Its name has been checked by then: [a-z][a-z0-9-]*."""

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
    def savepoints(self) -> Path:
        return self.home / "savepoints"

    @property
    def shadow(self) -> JobDirectory:
        """The places of the job beside the job that reads its topic again for another query."""
        return JobDirectory(self.home / "next", self.name)

    @property
    def replayed(self) -> Path:
        return self.home / "replayed"

    @property
    def failure(self) -> Path:
        return self.home / "failure.json"

    @property
    def lock(self) -> Path:
        return self.home / "lock"

    @property
    def cache(self) -> Path:
        return host_cache(self.data / "cache" / self.name)


def host_cache(cache: Path) -> Path:
    """The same job's cache on this host, which may keep it elsewhere than the one that told us."""
    own = os.environ.get("RETALLY_CACHE")
    return Path(own) / cache.name if own else cache
