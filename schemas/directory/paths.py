"""The paths of a job's files under the data directory, for its writer and its readers.

DIR/jobs/<name>/epochs          the table, the source of truth
               /epochs.url      the URL of the table instead, if it is in object storage
               /results         the mirror, unless the spec turns it off
               /mirror.json     when the mirror was refreshed last
               /spec.yaml       the spec of the last run
               /views/<view>.yaml  the spec of each view, as of a job with this view only
               /views/<view>/results, mirror.json  those of a view
               /spec.next.yaml  the spec that an evolve is about to activate
               /savepoints      named epochs
               /next            the shadow job, which reads the topic again for another query
               /next.discarded-*  shadow jobs that are being deleted
               /replayed        quarantined messages that were sent again
               /failure.json    the failure of the last run, if it failed
               /start.json      the phases of the last start
               /waiting.json    what the job waits for, while it waits
               /lock            the lock of the only writer
DIR/cache/<name>/<table>        the hot state of one table; may be deleted at any time
RETALLY_CACHE/<name>/<table>    the hot state, if the variable is set: on a cluster it names a local
                                disk, because the files are mapped into memory
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Self
from uuid import uuid4

from schemas.table.object_path import ObjectPath, TablePath
from schemas.table.view_path import view_root

HOT_STATE_NAME_CHARACTERS = 12
_DISCARDED = ".discarded-"


@dataclass(frozen=True, slots=True)
class JobDirectory:
    """The paths of one job. The caller has checked the name: [a-z][a-z0-9_-]*."""

    data: Path
    name: str
    view: str = ""  # "": the job's own query

    def at_view(self, view: str) -> Self:
        return replace(self, view=view)

    @property
    def home(self) -> Path:
        return self.data / "jobs" / self.name

    @property
    def table(self) -> TablePath:
        """The table, in object storage or here; for a job without one, here."""
        try:
            return view_root(ObjectPath.of(self.pointer.read_text().strip()), self.view)
        except FileNotFoundError:
            return view_root(self.own_table, self.view)
        except ValueError as error:
            raise ValueError(f"{self.pointer} is damaged: {error}") from None

    @property
    def own_table(self) -> Path:
        """The table in the data directory."""
        return self.home / "epochs"

    @property
    def pointer(self) -> Path:
        """The file with the URL of a table in object storage."""
        return self.home / "epochs.url"

    @property
    def has_table(self) -> bool:
        """Whether the data directory has a table or its URL."""
        return self.own_table.is_dir() or self.pointer.exists()

    @property
    def results(self) -> Path:
        return (self.view_specs / self.view if self.view else self.home) / "results"

    @property
    def mirror(self) -> Path:
        """When `results` was refreshed last."""
        return self.results.with_name("mirror.json")

    @property
    def spec(self) -> Path:
        return self.view_specs / f"{self.view}.yaml" if self.view else self.home / "spec.yaml"

    @property
    def view_specs(self) -> Path:
        """The directory with the specs of the views."""
        return self.home / "views"

    @property
    def next_spec(self) -> Path:
        """The spec that an evolve is about to activate."""
        return self.home / "spec.next.yaml"

    @property
    def savepoints(self) -> Path:
        return self.home / "savepoints"

    @property
    def shadow(self) -> JobDirectory:
        """The paths of the shadow job, which reads the topic again for another query."""
        return JobDirectory(self.home / "next", self.name)

    def list_discarded_shadows(self) -> list[Path]:
        """Return the directories of shadow jobs whose deletion has begun."""
        return sorted(self.home.glob(f"{self.shadow.data.name}{_DISCARDED}*"))

    def make_discarded_shadow(self) -> Path:
        """Return a new path for the shadow job while it is deleted."""
        return self.shadow.data.with_name(f"{self.shadow.data.name}{_DISCARDED}{uuid4().hex}")

    @property
    def replayed(self) -> Path:
        return self.home / "replayed"

    @property
    def start(self) -> Path:
        return self.home / "start.json"

    @property
    def failure(self) -> Path:
        return self.home / "failure.json"

    @property
    def waiting(self) -> Path:
        return self.home / "waiting.json"

    @property
    def lock(self) -> Path:
        return self.home / "lock"

    @property
    def cache(self) -> Path:
        """The hot states of the job's tables on this host."""
        own = os.environ.get("RETALLY_CACHE")
        return (Path(own) if own else self.data / "cache") / self.name

    def hot_state(self, table_id: str) -> Path:
        """Return the directory of the hot state of the job's table on this host.

        A host may have several jobs of one name, in other data directories or as shadow jobs. So
        each table has its own directory, and a copy of a table has another one.
        """
        known = sha256(f"{table_id} {self.table}".encode()).hexdigest()
        return self.cache / known[:HOT_STATE_NAME_CHARACTERS]

    def list_hot_states(self, table_id: str) -> list[Path]:
        """Return the directories of the hot states of the job's query and of all its views."""
        views = ["", *(path.stem for path in self.view_specs.glob("*.yaml"))]
        return [self.at_view(view).hot_state(table_id) for view in views]


def on_this_host(hot_state: Path) -> Path:
    """Return the path of the same hot state on this host, which may have another cache."""
    own = os.environ.get("RETALLY_CACHE")
    return Path(own).joinpath(*hot_state.parts[-2:]) if own else hot_state


def discard(directory: Path) -> None:
    """Remove the jobs of a directory: first their tables in object storage, then the directory.

    If object storage is unreachable, the directory stays, so that the caller can try again.
    """
    for below in ("", "jobs/*/", "next*/jobs/*/"):
        for pointer in directory.glob(f"{below}epochs.url*"):
            with suppress(ValueError):  # truncated by a kill: there is no table yet
                ObjectPath.of(pointer.read_text().strip()).remove_tree()
    shutil.rmtree(directory, ignore_errors=True)
