"""The newest changes of all jobs, from the epochs that the service has in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from schemas.limits import CONSOLE_NEWEST_CHANGES, CONSOLE_NEWEST_EPOCHS
from service.console.job_view import JobView
from service.console.rows import find_key, format_value, label_key, make_row
from service.live.recent_changes import Change
from service.live.table import LiveTable
from service.runtime import view_name


class NewestChange(NamedTuple):
    """A changed group: where its page is, and its values."""

    job: str
    base: str
    epoch: int
    at_ms: int
    op: str
    label: str
    link: str | None
    values: str


def list_newest_changes(jobs: Iterable[JobView]) -> list[NewestChange]:
    """Return the newest changes, the newest first; a group's old row is left out."""
    tables = [
        (job, base, job.live_tables[view])
        for job in jobs
        for view, base in (job.views or {"": job.base}).items()
        if view in job.live_tables
    ]
    found = (
        (at, change.seq, number, change)
        for number, (_, _, table) in enumerate(tables)
        for at, change in _iterate(table)
    )
    newest = nlargest(CONSOLE_NEWEST_CHANGES, found, key=itemgetter(0, 1, 2))
    return [_describe(*tables[number], at // 1_000, change) for at, _, number, change in newest]


def _iterate(table: LiveTable) -> Iterator[tuple[int, Change]]:
    """Yield the newest changes of a table, each with the time of its commit."""
    newest, left = table.newest, CONSOLE_NEWEST_CHANGES
    last = 0 if newest is None else newest.epoch
    for epoch in range(last, last - CONSOLE_NEWEST_EPOCHS, -1):
        changes = table.recent.find_epoch(epoch)
        if changes is None:
            return
        for change in reversed(changes.changes):
            if not change.document.startswith(b'{"op":"-U"'):
                yield changes.committed_at, change
                left -= 1
            if not left:
                return


def _describe(
    job: JobView, base: str, table: LiveTable, at_ms: int, change: Change
) -> NewestChange:
    document: Mapping[str, Any] = msgspec.json.decode(change.document)
    shape, row = table.shape, document["row"]
    key = find_key(shape, row)
    return NewestChange(
        view_name(job.name, table.paths.view),
        base,
        document["epoch"],
        at_ms,
        document["op"],
        "a row" if key is None else label_key(key),
        make_row(shape, frozenset(), row).link,
        ", ".join(f"{n} {format_value(row[n])}" for n in row if not key or n not in key),
    )
