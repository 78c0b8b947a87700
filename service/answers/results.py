"""Results for requests: one group or a page of many, current or past.

as_of ──► epoch ──► in the index? ──► index, at that epoch
                          └─ no ────► past results, from the table
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from jobs.reading.history import require_known_epoch
from jobs.reading.version import TableVersion, at_newest
from schemas.limits import TABLE_READS_MAX
from schemas.types.moments import parse_instant
from service.answers.history import raise_problems
from service.answers.listing import Listing
from service.answers.past_results import PastResults
from service.live.results_index import IndexSnapshot
from service.live.select import Select
from service.live.table import LiveTable
from service.problems import Problem, make_parameter_problem

_AS_OF = re.compile(r"(epoch|time|watermark):(.{1,64})")
_NUMBER_MAX = 2**62
Given = TypeVar("Given")
_make_problem = partial(make_parameter_problem, "query.as_of")


@dataclass(frozen=True, slots=True)
class ResultPage:
    """One page of a listing."""

    epoch: int
    watermark: int | None
    documents: list[bytes]
    cursor: str | None
    table_tag: str


class TableReadsBusy(Problem):
    """Too many reads of tables are running."""


class TableReads:
    """Reads of jobs' tables for requests, a limited number at once; thread-safe."""

    def __init__(self) -> None:
        self._free = threading.Semaphore(TABLE_READS_MAX)

    def read(self, live_table: LiveTable, work: Callable[[TableVersion], Given]) -> Given:
        """Return what `work` returns for the newest version of a job's table.

        Raise a Problem if the job has no epoch yet, or if too many reads are running.
        """
        with live_table.index.take_snapshot():
            pass
        with self.limit():
            return at_newest(live_table.paths.table, work)

    @contextmanager
    def limit(self) -> Iterator[None]:
        """Count one read; raise TableReadsBusy if too many are running.

        What the reader refuses becomes a Problem.
        """
        if not self._free.acquire(blocking=False):
            detail = f"{TABLE_READS_MAX} requests are reading tables; try again"
            headers = {"Retry-After": "1"}
            raise TableReadsBusy("too-many-requests", detail, headers=headers)
        try:
            with raise_problems():
                yield
        finally:
            self._free.release()


class Results:
    """The results of all jobs; thread-safe."""

    def __init__(self, reads: TableReads) -> None:
        self.reads = reads
        self._past = PastResults()

    def read_page(
        self,
        live_table: LiveTable,
        listing: Listing,
        limit: int,
        as_of: str | None,
        cursor: str | None,
    ) -> ResultPage:
        live_table.request_indexes(listing.columns)
        with live_table.index.take_snapshot() as snapshot:
            tag = snapshot.table_tag  # of these rows; that of `live_table` may be newer
            after = None if cursor is None else listing.decode_cursor(cursor, tag)
            select = listing.make_select(limit, after)
            epoch = after.epoch if after is not None else resolve_epoch(snapshot, as_of)
            watermark = snapshot.find_watermark(epoch)
            found = snapshot.select_rows(epoch, select)
        if found is None:
            found = self._read_past(live_table, tag, epoch, select)
        rows = found[:limit]
        more = len(found) > limit
        following = listing.encode_cursor(epoch, tag, rows[-1][1:]) if more else None
        return ResultPage(epoch, watermark, [row[0] for row in rows], following, tag)

    def read_group(
        self, live_table: LiveTable, key: bytes, as_of: str | None
    ) -> tuple[int, int | None, bytes | None, str]:
        """Return epoch, watermark and row of one group, and the tag of its table."""
        select = Select(["document"], ["key = ?"], [key])
        with live_table.index.take_snapshot() as snapshot:
            epoch = resolve_epoch(snapshot, as_of)
            watermark = snapshot.find_watermark(epoch)
            found = snapshot.select_rows(epoch, select)
        if found is None:
            found = self._read_past(live_table, snapshot.table_tag, epoch, select)
        return epoch, watermark, found[0][0] if found else None, snapshot.table_tag

    def _read_past(
        self, live_table: LiveTable, table_tag: str, epoch: int, select: Select
    ) -> list[tuple[Any, ...]]:
        with self.reads.limit():
            past = self._past.read_epoch(live_table.paths.table, live_table.shape, epoch, table_tag)
            return past.select_rows(select)


def resolve_epoch(snapshot: IndexSnapshot, as_of: str | None) -> int:
    """Return the epoch that `as_of` selects; the newest one without it."""
    if as_of is None:
        return snapshot.epoch
    found = _AS_OF.fullmatch(as_of)
    if found is None:
        raise _make_problem(
            "write as_of=epoch:N, as_of=time:2026-01-31T12:00:00Z or as_of=watermark:T"
        )
    kind, text = found.groups()
    if kind == "epoch":
        epoch = _parse_number(text)
        if epoch < 0:
            raise _make_problem("an epoch is 0 or greater")
        with raise_problems():
            require_known_epoch(epoch, snapshot.epoch)
        return epoch
    if kind == "time":
        at = snapshot.find_epoch_at_time(_parse_instant(text))
        if at is None:
            raise Problem("history-gone", f"no available epoch was committed by {text}")
        return at
    at = snapshot.find_epoch_at_watermark(_parse_number(text))
    if at is None:
        raise Problem("epoch-unknown", f"the watermark has not reached {text} yet")
    return at


def _parse_number(text: str) -> int:
    if re.fullmatch(r"-?[0-9]{1,18}", text) is None or abs(int(text)) > _NUMBER_MAX:
        raise _make_problem("epochs and watermarks are integers")
    return int(text)


def _parse_instant(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    try:
        return parse_instant(text.replace(" ", "+")) // 1_000
    except ValueError:
        raise _make_problem(
            "write a time as ISO 8601, such as 2026-01-31T12:00:00Z, or as milliseconds"
        ) from None
