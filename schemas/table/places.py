"""Where the parts of a job lie under the data directory, for its writer and its readers alike.

DIR/jobs/<name>/epochs          the table, the only truth
               /epochs.url      where the table is instead, if that is in object storage
               /results         the mirror, if the spec asks for one
               /spec.yaml       the spec of the last run
               /spec.next.yaml  the spec that an evolve is about to make the job's own
               /savepoints      named epochs
               /next            a job beside it, which reads its topic again for another query
               /replayed        messages of the quarantine that were sent again
               /failure.json    why the last run failed, if it did
               /lock            held by the one writer
DIR/cache/<name>/<table>        the hot state of one table; may be deleted at any time
RETALLY_CACHE/<name>/<table>    where it is instead, if that is set: on a cluster, a disk of the
                                host's own, for the files are mapped into memory
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from schemas.table.object_path import ObjectPath, TablePath

HOT_STATE_NAME_CHARACTERS = 12


@dataclass(frozen=True, slots=True)
class JobDirectory:
    """The places of one job. Its name has been checked by then: [a-z][a-z0-9-]*."""

    data: Path
    name: str

    @property
    def home(self) -> Path:
        return self.data / "jobs" / self.name

    @property
    def table(self) -> TablePath:
        """Wherever it is; for a job that has not begun, here."""
        try:
            return ObjectPath.of(self.pointer.read_text().strip())
        except FileNotFoundError:
            return self.own_table
        except ValueError as error:
            raise ValueError(f"{self.pointer} is damaged: {error}") from None

    @property
    def own_table(self) -> Path:
        """The table in the data directory."""
        return self.home / "epochs"

    @property
    def pointer(self) -> Path:
        """The URL of a table in object storage."""
        return self.home / "epochs.url"

    @property
    def begun(self) -> bool:
        """Whether there is a table, as far as the data directory knows."""
        return self.own_table.is_dir() or self.pointer.exists()

    @property
    def made(self) -> int:
        """Another number for a table that was made anew in the place of an old one."""
        place = self.pointer if self.pointer.exists() else self.own_table
        return place.stat().st_ino

    @property
    def results(self) -> Path:
        return self.home / "results"

    @property
    def spec(self) -> Path:
        return self.home / "spec.yaml"

    @property
    def next_spec(self) -> Path:
        """The spec that an evolve is about to make the job's own."""
        return self.home / "spec.next.yaml"

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
        """The hot states of the job's tables on this host."""
        own = os.environ.get("RETALLY_CACHE")
        return (Path(own) if own else self.data / "cache") / self.name

    def hot_state(self, table_id: str) -> Path:
        """Return where this host keeps the hot state of the job's table.

        A host may have several jobs of one name: of other data directories, or one that reads its
        topic again beside the job. Each table has a directory of its own, and so has its copy.
        """
        known = sha256(f"{table_id} {self.table}".encode()).hexdigest()
        return self.cache / known[:HOT_STATE_NAME_CHARACTERS]


def on_this_host(hot_state: Path) -> Path:
    """Return the place of the same hot state on this host, which may keep it elsewhere."""
    own = os.environ.get("RETALLY_CACHE")
    return Path(own).joinpath(*hot_state.parts[-2:]) if own else hot_state


def discard(directory: Path) -> None:
    """Remove what there is of jobs in a directory: their tables wherever they are, then the rest.
    While object storage cannot be asked all of it stays, so that this can be tried again."""
    for below in ("", "jobs/*/", "next/jobs/*/"):
        for pointer in directory.glob(f"{below}epochs.url*"):
            with suppress(ValueError):  # a kill has cut it off: nothing was made there
                ObjectPath.of(pointer.read_text().strip()).remove_tree()
    shutil.rmtree(directory, ignore_errors=True)
