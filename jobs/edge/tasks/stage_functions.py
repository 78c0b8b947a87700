"""The functions of an epoch's stages; values, so that Spark can send them to the workers.

    numbers of ranges, or records ─► TaskChain ─► parcels ─┬─► Outbox ─► records of a shuffle
                                                           └─► ViewsFold ─► by view: FoldTask
                                   └──────────────── EpochTask ────────┘     ─► files, reports

A small epoch, with work for one fold task only, is one stage. It saves a shuffle and a second
worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from jobs.edge.process.failpoints import failpoint
from jobs.edge.rows.weighted_rows import Parcel, take_parcels
from jobs.edge.tasks.body import task_body
from jobs.edge.tasks.fold import FoldTask
from jobs.edge.tasks.fold_inputs import FoldReport


class ParcelTask(Protocol):
    """A task that takes its own parcels, makes others, and passes on all that are not its own.

    The first task of a stage gets numbers of ranges, or records of a shuffle.
    """

    def run(self, given: Iterator[Any]) -> Iterator[Parcel]: ...


@dataclass(frozen=True, slots=True)
class TaskChain:
    """Several such tasks, one after the other, none of which needs parcels of a later one."""

    tasks: tuple[ParcelTask, ...]

    def run(self, given: Iterable[Any]) -> Iterator[Parcel]:
        found = iter(given)
        for task in self.tasks:
            found = task.run(found)
        return found


@dataclass(frozen=True, slots=True)
class ViewsFold:
    """Folds the parcels of a job, which has at least one view."""

    folds: tuple[FoldTask, ...]

    def run(self, given: Iterable[Parcel]) -> Iterator[bytes]:
        """Yield the reports, of this task and of those before it."""
        parcels = take_parcels(given, self.folds[0].attempt.bytes_max)
        if parcels is None:
            yield msgspec.json.encode(FoldReport(too_large=True))
            return
        yield from (report.content for report in parcels.get(None, ()))
        for fold in self.folds:
            failpoint("fold_task")  # also between two views
            if own := parcels.get(fold.view):
                yield fold.fold_parcels(own)


@dataclass(frozen=True, slots=True)
class EpochTask:
    """The function of the last stage: what its tasks send is folded by the same task."""

    chain: TaskChain
    fold: ViewsFold

    def __call__(self, given: Iterable[Any]) -> Iterator[bytes]:
        with task_body():
            yield from self.fold.run(self.chain.run(given))
