"""Rules: the settings of a job that affect its results, besides the query."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.core.fold.state import Group, Key
from jobs.core.fold.window_closing import Closing

if TYPE_CHECKING:  # it imports modules that a task does not need
    from schemas.spec.job import JobSpec


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings of a job that affect its results, besides the query."""

    ttl_ms: int = 0  # 0: groups live for ever
    refresh: bool = False  # send equal results again, which keeps state downstream alive
    emit_expired: bool = True  # emit -D when a group expires
    withhold: bool = False  # until `release`: the event clock
    closing: Closing | None = None  # of windows
    drop_early: bool = False  # drop retractions before the first row of a group, as Flink does

    def has_expired(self, group: Group | None, now_ms: int) -> bool:
        """Return whether a group expires now."""
        if group is None or group.written is None or group.withheld:
            return False
        return 0 < self.ttl_ms <= now_ms - group.written

    def find_withheld(self, keys: Iterable[Key], watermark: int | None) -> set[Key]:
        """Return the groups whose changes are folded and not emitted yet."""
        if self.withhold:
            return set(keys)
        return self.find_incomplete(keys, watermark)

    def find_incomplete(self, keys: Iterable[Key], watermark: int | None) -> set[Key]:
        """Return the groups that emit nothing until their window is complete."""
        closing = self.closing
        if closing is None or not closing.final:
            return set()
        return {key for key in keys if closing.withholds(key, watermark)}


DEFAULT_RULES = Rules()


def rules_of(spec: JobSpec, *, withhold: bool = False, closing: Closing | None = None) -> Rules:
    """Return the rules of a spec. Without a TTL, `refresh` has no effect."""
    state = spec.state
    return Rules(
        ttl_ms=state.ttl_ms,
        refresh=state.ttl_ms > 0 and state.refresh,
        emit_expired=state.emit_expired,
        withhold=withhold,
        closing=closing,
        drop_early=spec.drops_early,
    )
