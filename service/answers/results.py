"""Results as requests ask for them: one group or a page of many, now or as they were.

as_of ──► epoch ──► in the index? ──► index, at that epoch
                          └─ no ────► past results, from the table
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from schemas.limits import TABLE_READS_MAX
from service.answers.listing import Listing
from service.answers.past_results import PastResults
from service.live.follower import Follower
from service.live.results_index import Reading
from service.live.select import Select
from service.problems import Problem

_AS_OF = re.compile(r"(epoch|time|watermark):(.{1,64})")
_NUMBER_MAX = 2**62


@dataclass(frozen=True, slots=True)
class Page:
    epoch: int
    watermark: int | None
    documents: list[bytes]
    cursor: str | None


class TableReads:
    """So many requests at once may read tables; who comes too many is told so."""

    def __init__(self) -> None:
        self._free = threading.Semaphore(TABLE_READS_MAX)

    @contextmanager
    def one(self) -> Iterator[None]:
        if not self._free.acquire(blocking=False):
            detail = f"{TABLE_READS_MAX} requests read tables already; try again"
            raise Problem("too-many-requests", 429, detail, headers={"Retry-After": "1"})
        try:
            yield
        finally:
            self._free.release()


class Results:
    """The results of all jobs."""

    def __init__(self, reads: TableReads) -> None:
        self._reads = reads
        self._past = PastResults()

    def page(
        self,
        follower: Follower,
        listing: Listing,
        limit: int,
        as_of: str | None,
        cursor: str | None,
    ) -> Page:
        after = None if cursor is None else listing.place(cursor)
        select = listing.select(limit, after)
        follower.want(listing.columns)
        with follower.index.reading() as reading:
            epoch = after.epoch if after is not None else wanted_epoch(reading, as_of)
            watermark = reading.watermark(epoch)
            found = reading.rows_of(epoch, select)
        if found is None:
            found = self._past_rows(follower, epoch, select)
        return _page(listing, epoch, watermark, found, limit)

    def group(
        self, follower: Follower, key: bytes, as_of: str | None
    ) -> tuple[int, int | None, bytes | None]:
        """Epoch, watermark and row of one group."""
        select = Select(["document"], ["key = ?"], [key])
        with follower.index.reading() as reading:
            epoch = wanted_epoch(reading, as_of)
            watermark = reading.watermark(epoch)
            found = reading.rows_of(epoch, select)
        if found is None:
            found = self._past_rows(follower, epoch, select)
        return epoch, watermark, found[0][0] if found else None

    @staticmethod
    def known_epoch(epoch: int, newest: int) -> None:
        if epoch > newest:
            detail = f"there is no epoch {epoch} yet; the newest is {newest}"
            raise Problem("epoch-unknown", 404, detail, newest=newest)

    def _past_rows(self, follower: Follower, epoch: int, select: Select) -> list[tuple[Any, ...]]:
        with self._reads.one():
            # A table made anew has other epochs of the same numbers; a changed query other columns.
            made = f"{follower.places.made}-{follower.shape.plan.fingerprint}"
            past = self._past.epoch(follower.places.table, follower.shape, epoch, made)
            return past.rows(select)


def _page(
    listing: Listing,
    epoch: int,
    watermark: int | None,
    found: list[tuple[Any, ...]],
    limit: int,
) -> Page:
    rows = found[:limit]
    cursor = listing.cursor(epoch, rows[-1][1:]) if len(found) > limit else None
    return Page(epoch, watermark, [row[0] for row in rows], cursor)


def wanted_epoch(reading: Reading, as_of: str | None) -> int:
    """The epoch that `as_of` means; the newest without it."""
    if as_of is None:
        return reading.epoch
    found = _AS_OF.fullmatch(as_of)
    if found is None:
        raise _refused("write as_of=epoch:N, as_of=time:2026-01-31T12:00:00Z or as_of=watermark:T")
    kind, text = found.groups()
    if kind == "epoch":
        epoch = _number(text)
        Results.known_epoch(epoch, reading.epoch)
        return epoch
    if kind == "time":
        at = reading.epoch_at_time(_instant(text))
        if at is None:
            raise Problem("history-gone", 410, f"no epoch is known that was there at {text}")
        return at
    at = reading.epoch_at_watermark(_number(text))
    if at is None:
        raise Problem("epoch-unknown", 404, f"the watermark has not reached {text} yet")
    return at


def _number(text: str) -> int:
    if re.fullmatch(r"-?[0-9]{1,18}", text) is None or abs(int(text)) > _NUMBER_MAX:
        raise _refused("epochs and watermarks are whole numbers")
    return int(text)


def _instant(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+"))
    except ValueError:
        raise _refused("a time is ISO 8601, as 2026-01-31T12:00:00Z, or milliseconds") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1_000)


def _refused(reason: str) -> Problem:
    errors = [{"path": "query.as_of", "message": reason}]
    return Problem("parameter-invalid", 422, reason, errors=errors)
