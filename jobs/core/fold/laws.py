"""Laws: wrappers that pass data through and raise BrokenLaw if it violates an invariant.

They run in production too. A broken law is a bug in retally; the job stops before it commits, so
nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from jobs.core.values.change import Op
from schemas.failures.catalogue import CodedError

K = TypeVar("K")
R = TypeVar("R")


class BrokenLaw(CodedError, AssertionError, code="law-broken"):
    """An invariant is violated; the job stops before it commits."""


def well_formed(changelog: Iterable[tuple[Op, K, R]]) -> Iterator[tuple[Op, K, R]]:
    """Check that a bundle has at most one change per key: +I, -D, or -U directly before +U."""
    seen: set[K] = set()
    open_update: K | None = None
    waiting = False
    for op, key, row in changelog:
        if waiting:
            if op is not Op.UPDATE_AFTER or key != open_update:
                raise BrokenLaw(f"-U of {open_update!r} is followed by {op} of {key!r}")
            waiting = False
        else:
            if op is Op.UPDATE_AFTER:
                raise BrokenLaw(f"+U of {key!r} without a -U directly before it")
            if key in seen:
                raise BrokenLaw(f"{key!r} changes twice in one bundle")
            seen.add(key)
            waiting = op is Op.UPDATE_BEFORE
            open_update = key
        yield op, key, row
    if waiting:
        raise BrokenLaw(f"-U of {open_update!r} ends the bundle without its +U")


def repeats_the_last_row(
    last: Callable[[K], R | None], changelog: Iterable[tuple[Op, K, R]]
) -> Iterator[tuple[Op, K, R]]:
    """Check that each retraction repeats the last row of its key, and +I finds none.

    `last` returns a key's row before the bundle. NaN equals itself, as everywhere.
    """
    for op, key, row in changelog:
        if op is not Op.UPDATE_AFTER:
            before = last(key)
            if op is Op.INSERT and before is not None:
                raise BrokenLaw(f"+I of {key!r}, which already exists as {before!r}")
            if op is not Op.INSERT and repr(before) != repr(row):
                raise BrokenLaw(f"{op} of {key!r} retracts {row!r}, but the last row is {before!r}")
        yield op, key, row


def messages_conserved(where: str, read: int, **parts: int) -> None:
    """Check that every message is decoded, skipped, filtered or quarantined."""
    if read != sum(parts.values()):
        raise BrokenLaw(
            f"{where}: {read} messages were read, but {parts} add up to {sum(parts.values())}"
        )


def rows_conserved(sent: int, arrived: int, *, filters: bool, copies: int = 1) -> int:
    """Check that every decoded row reached the fold, and return how many WHERE removed.

    Each row arrives once per window that it is in (`copies`).
    """
    whole, rest = divmod(arrived, copies)
    if rest or whole > sent or (whole < sent and not filters):
        raise BrokenLaw(f"{sent} weighted rows were sent, {arrived} arrived, {copies} of each")
    return sent - whole
