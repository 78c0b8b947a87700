"""The views of a running job: what each has of its own, and its share of an epoch's row."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from jobs.core.aggregates import clock_of_timers
from jobs.core.fold.state import Stamp
from jobs.core.fold.window_closing import Closing
from jobs.core.job.window_rules import closing_of
from jobs.core.plan.tree import Plan
from jobs.core.time.due_work import DueWork
from jobs.edge.state.bucket_states import CommittedEpoch, CommittedState, find_recent_epochs
from jobs.edge.table.file_writer import AddedFile
from jobs.reading.files import LiveFile, files_of_view
from jobs.running.outcome import Outcome
from schemas.limits import RECENT_EPOCHS_MAX
from schemas.spec.job import JobSpec
from schemas.table.epoch import REFUSED, VIEWS, EpochRow, ViewShare, store_due_work
from schemas.table.object_path import TablePath
from schemas.table.view_path import view_root
from schemas.types.json_types import JsonObject


class Subtable(NamedTuple):
    """What maintenance merges and cleans on its own; "" has the files that all views share."""

    view: str
    plan: Plan
    root: TablePath


def recent_epochs_of(
    table: TablePath, name: str, files: list[LiveFile], newest: EpochRow
) -> deque[CommittedEpoch]:
    """Return the recent epochs of a view, or of other state with a name; base is the last."""
    seen = files_of_view(files, name)
    found = find_recent_epochs(view_root(table, name), seen, newest.of_view(name))
    return deque(found, maxlen=RECENT_EPOCHS_MAX)


@dataclass(slots=True)
class KeptState:
    """State with a part of the table: of a view, the images of a source, or a side of a join."""

    number: int  # among the readers of parcels
    name: str  # of its part of the table
    plan: Plan
    root: TablePath
    cache: Path
    recent_epochs: deque[CommittedEpoch]

    def extend(self, row: EpochRow) -> None:
        """Take the epoch that was committed."""
        self.recent_epochs.append(CommittedEpoch.of(row.of_view(self.name)))

    def at(self, base: Stamp, version: int) -> CommittedState:
        """Return what a task gets of it; `version` is the table's, at base."""
        return CommittedState(self.root, self.cache, base, version, tuple(self.recent_epochs))


@dataclass(slots=True)
class RunningView(KeptState):
    """One view of a running job; "" is the job's own query."""

    spec: JobSpec  # as of a job with this view only
    newest: EpochRow  # as this view sees it
    due_work: DueWork
    closing: Closing | None

    @classmethod
    def of(
        cls,
        number: int,
        name: str,
        spec: JobSpec,
        plan: Plan,
        table: TablePath,
        cache: Path,
        files: list[LiveFile],
        newest: EpochRow,
    ) -> RunningView:
        """Continue a view from the newest epoch of the job."""
        own, closing = newest.of_view(name), closing_of(spec, plan)
        return cls(
            number,
            name,
            plan,
            view_root(table, name),
            cache,
            recent_epochs_of(table, name, files, newest),
            spec,
            own,
            DueWork(
                spec.minibatch,
                spec.state.ttl_ms,
                own.time.due_work,
                fresh=own.fresh,
                closing=closing,
                opens=bool(plan.empty_keys) and not own.groups,
                timers=clock_of_timers(plan),
            ),
            closing,
        )

    def extend(self, row: EpochRow) -> None:
        """Take the epoch that was committed."""
        KeptState.extend(self, row)
        self.newest = row.of_view(self.name)

    def count(self, outcome: Outcome, *, data: bool) -> dict[str, Any]:
        """Return the view's counters of an epoch; raise BrokenLaw if rows of it got lost."""
        counters: dict[str, Any] = {}
        if data:
            counters["where_filtered"] = outcome.count_filtered(self.plan, self.number)
            counters["shipped"] = outcome.count_shipped(self.number)
            refused = sum(each.count for each in self.refusals(outcome))
            if refused:
                counters[REFUSED] = refused
        return counters | outcome.sum_fold_counters(self.plan, self.number, self.newest)

    def refusals(self, outcome: Outcome) -> list[Any]:
        """Return what the view refused of each range."""
        return [
            each for report in outcome.ranges for each in report.refused if each.view == self.number
        ]

    def list_files(self, outcome: Outcome) -> list[AddedFile]:
        """Return the files of the view in an epoch, as files of the table."""
        files = [file for fold in outcome.folds if fold.view == self.number for file in fold.files]
        files += [file for each in self.refusals(outcome) for file in each.files]
        return [file.of_view(self.name) for file in files]

    def share(self, counters: JsonObject) -> ViewShare:
        """Return the view's entry in the epoch row."""
        return ViewShare(
            plan=self.plan.fingerprint,
            buckets=self.spec.state.buckets,
            counters=counters,
            time=self.snapshot_time(),
        )

    def snapshot_time(self) -> JsonObject:
        """Return what the next start needs of the due work."""
        return store_due_work(self.due_work.snapshot())


def unite_views(shares: Mapping[str, ViewShare]) -> JsonObject:
    """Return the counters of an epoch row: each view's, their sums, and the longest times."""
    totals: JsonObject = {}
    for share in shares.values():
        for name, count in share.counters.items():
            if name == "fold_seconds":
                totals[name] = max(count, totals.get(name, 0.0))
            elif isinstance(count, int) and not isinstance(count, bool):
                totals[name] = totals.get(name, 0) + count
    return totals | {VIEWS: msgspec.to_builtins(shares)}
