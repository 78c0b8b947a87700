"""Idleness: whether a partition has been silent for so long that nobody need wait for it.

    record ──► heard          probe: heard since the last one? ─ yes ─► not silent, timer off
                                     └─ no: timer off? ─ yes ─► timer on, from now
                                               └─ no: on for longer than `after`? ──► idle

The timer is Flink's, so the first mark comes two probes and more than `after` behind the last
record. The probes are those of the periodic emission. Time in which the partition is paused does
not count: it was not asked, so it was not silent. A partition with records that nobody has read
yet is not silent either (Flink knows nothing of those).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class IdlenessTimer:
    """One partition's silence. Times are milliseconds on any clock that does not go back."""

    __slots__ = ("_after", "_heard", "_paused_at", "_since")

    def __init__(self, after: int) -> None:
        if after <= 0:
            raise ValueError(f"idle_after is {after} ms; it must be greater than 0")
        self._after = after
        self._heard = False  # anything since the last probe
        self._since: int | None = None  # when the silence began; moved on by every pause
        self._paused_at: int | None = None

    def activity(self) -> None:
        self._heard = True

    def pause(self, now: int) -> None:
        if self._paused_at is None:
            self._paused_at = now

    def resume(self, now: int) -> None:
        if self._paused_at is None:
            return
        if self._since is not None:
            self._since += now - self._paused_at
        self._paused_at = None

    def probe(self, now: int) -> bool:
        """Look at the partition, and say whether it is idle."""
        now = self._own(now)
        if self._heard:
            self._heard, self._since = False, None
        elif self._since is None:
            self._since = now
        else:
            return now - self._since > self._after
        return False

    def idle_in(self, now: int) -> int:
        """How long until a probe would say idle if nothing more is heard; 0: the next one."""
        if self._since is None or self._heard:
            return self._after + 1
        return max(0, self._since + self._after + 1 - self._own(now))

    def _own(self, now: int) -> int:
        return now if self._paused_at is None else self._paused_at

    def snapshot(self, now: int) -> dict[str, Any]:
        """How long the silence has lasted, not since when: while nobody runs, nobody listens."""
        silent = {} if self._since is None else {"silent_ms": self._own(now) - self._since}
        return silent | ({"heard": True} if self._heard else {})

    def restore(self, state: Mapping[str, Any], now: int) -> None:
        """As it was at a snapshot, not paused."""
        silent = state.get("silent_ms")
        self._since = None if silent is None else now - silent
        self._heard = bool(state.get("heard"))
        self._paused_at = None
