"""Rules: what a job says of its results beside the query, for the fold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.core.fold.state import Key
from jobs.core.fold.window_closing import Closing

if TYPE_CHECKING:  # it loads what a task has no use for
    from schemas.spec.job import State as StateSpec


@dataclass(frozen=True, slots=True)
class Rules:
    """What a job says of its results beside the query."""

    ttl_ms: int = 0  # 0: groups live for ever
    refresh: bool = False  # send equal results again, which keeps state downstream alive
    emit_expired: bool = True  # a group that expires says so with -D
    withhold: bool = False  # until `release`: the event clock
    closing: Closing | None = None  # of windows

    def withheld(self, keys: Iterable[Key], watermark: int | None) -> set[Key]:
        """The groups whose changes are folded and not told yet."""
        if self.withhold:
            return set(keys)
        return self.incomplete(keys, watermark)

    def incomplete(self, keys: Iterable[Key], watermark: int | None) -> set[Key]:
        """The groups that are told nothing of before their window is complete."""
        closing = self.closing
        if closing is None or not closing.final:
            return set()
        return {key for key in keys if closing.withholds(key, watermark)}


FOR_EVER = Rules()


def rules_of(state: StateSpec, *, withhold: bool = False, closing: Closing | None = None) -> Rules:
    """The rules of a spec's `state` section. Without a TTL nothing is sent again."""
    return Rules(
        ttl_ms=state.ttl_ms,
        refresh=state.ttl_ms > 0 and state.refresh,
        emit_expired=state.emit_expired,
        withhold=withhold,
        closing=closing,
    )
