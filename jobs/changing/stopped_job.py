"""A stopped job, opened to commit one epoch that changes all of its views together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.reading import TableReader, open_views
from jobs.reading.files import files_of_view
from jobs.reading.history import HistoryGone
from jobs.reading.savepoints import Savepoint
from jobs.running.views import unite_views
from schemas.directory.paths import JobDirectory
from schemas.table.epoch import EpochRow
from schemas.types.json_types import JsonObject


@dataclass(frozen=True, slots=True)
class StoppedJob:
    """The table of a job whose writer lock the caller holds, and a reader of each view."""

    views: dict[str, TableReader]  # "" is the job's own query
    table: EpochTable
    newest: EpochRow  # as it is written, with all views

    @classmethod
    def open(cls, paths: JobDirectory) -> StoppedJob:
        views = open_views(paths)
        table = EpochTable.open(paths.table, next(iter(views.values())).layout)
        newest = table.newest()
        if newest is None:
            raise HistoryGone(f"the table of job {paths.name!r} has no epoch yet")
        return cls(views, table, newest)

    @property
    def reader(self) -> TableReader:
        """The reader of one view, for what all views share: source, offsets, durability."""
        return next(iter(self.views.values()))


def unite_counters(row: EpochRow, counters: Mapping[str, JsonObject]) -> JsonObject:
    """Return the counters of an epoch that takes over the plans and the due work of `row`.

    `counters` has those of each view; of a job with one query, those of "".
    """
    if not row.shares:
        return dict(counters[""])
    shares = {name: replace(row.shares[name], counters=own) for name, own in counters.items()}
    return unite_views(shares)


def find_obstacle(
    paths: JobDirectory,
    target: Savepoint,
    plans: Mapping[str, str],
    views: Mapping[str, TableReader],
) -> str | None:
    """Return why a job with these plans cannot have the state of an epoch, if so."""
    whose = f"epoch {target.row.epoch} of job {paths.name!r}"
    if target.row.plans != plans:
        return (
            f"{whose} has another query or other column types than the job has now; choose an "
            "epoch after the last evolve"
        )
    missing = [file.path for file in target.files if not (paths.table / file.path).exists()]
    if missing:
        return (
            f"{len(missing)} files of the state of {whose} are gone, for example {missing[0]}; "
            "choose another epoch or savepoint, or restore the files from a backup"
        )
    if _has_other_buckets(target, views):
        return (
            f"{whose} has a view with other state.buckets than the job has now; choose a later "
            "epoch"
        )
    return None


def _has_other_buckets(target: Savepoint, views: Mapping[str, TableReader]) -> bool:
    """Return whether an epoch has state in other buckets than those of the views' specs.

    The row of a job with one query does not say how many buckets it has. Then its files do.
    """
    known = target.row.buckets
    return any(
        known[name] != reader.spec.state.buckets
        if name in known
        else not reader.is_in_own_buckets(files_of_view(target.files, name))
        for name, reader in views.items()
    )
