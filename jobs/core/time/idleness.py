"""Idleness: ignore a partition without records for `after` milliseconds in the watermark.

    record ──► active         probe: active since the last one? ─ yes ─► not idle, timer off
                                     └─ no: timer off? ─ yes ─► timer on, from now
                                               └─ no: on for longer than `after`? ──► idle

The timer is Flink's: a partition becomes idle two probes and more than `after` after its last
record. The periodic emission probes. Time in which the partition is paused does not count, because
the job does not read it then. A partition with unread records is not idle either (Flink does not
check for unread records).
"""

from __future__ import annotations

from msgspec.structs import replace

from schemas.table.epoch import PartitionSnapshot


class IdlenessTimer:
    """Measures how long one partition has no records, in ms of a clock that never goes back."""

    __slots__ = ("_active", "_after", "_paused_at", "_since")

    def __init__(self, after: int) -> None:
        if after <= 0:
            raise ValueError(f"idle_after is {after} ms; it must be greater than 0")
        self._after = after
        self._active = False  # records since the last probe
        self._since: int | None = None  # start of the silence; every pause moves it on
        self._paused_at: int | None = None

    def record_activity(self) -> None:
        self._active = True

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
        """Check the partition once and return whether it is idle."""
        now = self._listening_time(now)
        if self._active:
            self._active, self._since = False, None
        elif self._since is None:
            self._since = now
        else:
            return now - self._since > self._after
        return False

    def time_to_idle(self, now: int) -> int:
        """Return the ms until a probe finds the partition idle if no record comes; 0: the next."""
        if self._since is None or self._active:
            return self._after + 1
        return max(0, self._since + self._after + 1 - self._listening_time(now))

    def _listening_time(self, now: int) -> int:
        return now if self._paused_at is None else self._paused_at

    def snapshot(self, now: int, partition: PartitionSnapshot) -> PartitionSnapshot:
        """Add how long the silence has lasted; time while no driver runs does not count."""
        silent = None if self._since is None else self._listening_time(now) - self._since
        return replace(partition, silent_ms=silent, heard=self._active)

    def restore(self, state: PartitionSnapshot, now: int) -> None:
        """Continue from a snapshot, not paused."""
        self._since = None if state.silent_ms is None else now - state.silent_ms
        self._active = state.heard
        self._paused_at = None
