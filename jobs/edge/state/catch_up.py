"""Bring the hot state of one bucket to a task's base, whatever state it is in.

stamp ─► older, a recent committed epoch ─► apply the epochs since ─┐
   │     empty, damaged, not among them ──► rebuild ────────────────┴─► at base
   └───► newer than the base ─► ZombieTask
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from jobs.core.fold.state import Stamp
from jobs.edge.state.errors import HotStateDamaged, HotStateError, StampMoved
from schemas.failures.catalogue import CodedError
from schemas.limits import CATCH_UP_TRIES_MAX

C_contra = TypeVar("C_contra", contravariant=True)  # the changes of an epoch; None is none


class ZombieTask(CodedError, code="hot-state-ahead"):
    """The state is ahead of this task's base: a newer driver is at work, so write nothing."""


class BucketState(Protocol[C_contra]):
    """The committed state of one bucket, at one stamp."""

    directory: Path

    def read_stamp(self) -> Stamp | None: ...

    def advance(
        self, steps: Iterable[tuple[Stamp, C_contra | None]], *, since: Stamp | None
    ) -> None: ...

    def rebuild(
        self, steps: Iterable[tuple[Stamp, C_contra | None]], *, since: Stamp | None
    ) -> None: ...


def catch_up(
    state: BucketState[C_contra],
    base: Stamp,
    recent: Sequence[Stamp],
    load: Callable[[Stamp | None], Iterable[tuple[Stamp, C_contra | None]]],
) -> None:
    """Bring a bucket's state to `base`, whatever its stamp is.

        at base                                      do nothing
        older, in `recent`                           apply the epochs since
        newer than base                              raise ZombieTask
        empty, unknown, other layout, damaged        rebuild from the table
        locked by another process                    wait with a limit, try again

    `recent` has the newest committed stamps in order. `load(stamp)` yields the epochs after `stamp`
    up to base (epochs without upserts may be absent); `load(None)` yields the whole state in parts.
    """
    trouble: HotStateError | None = None
    for _ in range(CATCH_UP_TRIES_MAX):
        found = state.read_stamp()
        if found == base:
            return
        if found is not None and (found.generation, found.epoch) > (base.generation, base.epoch):
            raise ZombieTask(
                f"{state.directory}: the state is at {found}, but this task's base is {base}; a "
                "newer writer is at work; if you restored the table, delete the directory"
            )
        try:
            if found is not None and found in recent:
                state.advance(_require_recent(load(found), found, base, recent), since=found)
            else:
                whole = itertools.chain(load(None), [(base, None)])
                state.rebuild(whole, since=found)
        except (StampMoved, HotStateDamaged) as error:
            trouble = error
    raise HotStateError(
        f"{state.directory}: after {CATCH_UP_TRIES_MAX} attempts the state is at "
        f"{state.read_stamp()}, not at {base}; another process advances it"
    ) from trouble


def _require_recent(
    steps: Iterable[tuple[Stamp, C_contra | None]],
    found: Stamp,
    base: Stamp,
    recent: Sequence[Stamp],
) -> Iterable[tuple[Stamp, C_contra | None]]:
    """Yield the steps after `found` and then `base`; raise if a step is not committed."""
    positions = {stamp: position for position, stamp in enumerate(recent)}
    positions[base] = len(recent)
    at = positions[found]
    for stamp, changes in steps:
        position = positions.get(stamp, -1)
        if position < at or stamp == found:
            raise HotStateError(f"epoch {stamp} was loaded to follow {recent[at : at + 1] or base}")
        at = position
        yield stamp, changes
    yield base, None
