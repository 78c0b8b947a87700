"""The history of a job's epochs and of its lag, for charts.

    epoch row (follower) ──► the newest epochs, each by itself
              └──────┬─────► slots of ten seconds over the last hour
    lag (lags) ──────┘

It is in memory and bounded. When the service starts, it reads the epoch rows of the table, which
contain everything but the lag. An unknown value is a gap, not zero.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from schemas.limits import HISTORY_EPOCHS_MAX, HISTORY_SLOT_SECONDS, HISTORY_SLOTS_MAX
from schemas.table.epoch import EpochRow

SLOT_MS = HISTORY_SLOT_SECONDS * 1_000


@dataclass(frozen=True, slots=True)
class EpochPoint:
    """The figures of one epoch. Durations are in seconds."""

    epoch: int
    kind: str
    at_ms: int  # when it was committed
    read: int
    changes: int  # changelog rows
    quarantined: int
    groups: int | None
    watermark: int | None
    delay_ms: int | None  # from the greatest time of its rows to its commit
    seconds: float | None  # from its start to its commit
    decoding: float | None  # the longest task that read and decoded
    folding: float | None  # the longest task that folded
    planning: float | None  # before its tasks, and checking them after
    commit: float | None = None  # reported by the next epoch

    @classmethod
    def from_row(cls, row: EpochRow) -> EpochPoint:
        counts = row.counts
        phases = counts.phases_ms
        planning = (phases.get("plan", 0.0) + phases.get("judge", 0.0)) / 1_000
        return cls(
            epoch=row.epoch,
            kind=row.kind,
            at_ms=row.committed_at // 1_000,
            read=counts.read,
            changes=counts.changelog_rows,
            quarantined=counts.quarantined,
            groups=counts.groups,
            watermark=row.watermark,
            delay_ms=counts.event_lag_ms,
            seconds=counts.compute_seconds,
            decoding=counts.decode_seconds,
            folding=counts.fold_seconds,
            planning=planning if phases else None,
        )


@dataclass(frozen=True, slots=True)
class Slot:
    """Ten seconds of a job; None for unknown values."""

    at_ms: int  # its start
    epochs: int = 0
    read: int = 0
    changes: int = 0
    quarantined: int = 0
    delay_ms: int | None = None  # the maximum
    lag: int | None = None  # the last one

    @property
    def read_per_second(self) -> float:
        return self.read / HISTORY_SLOT_SECONDS

    @property
    def changes_per_second(self) -> float:
        return self.changes / HISTORY_SLOT_SECONDS


@dataclass(frozen=True, slots=True)
class LagPoint:
    """The lag at one moment; both offsets were read together, not seconds apart."""

    at_ms: int
    records: int
    partitions: Mapping[str, int]  # by TOPIC/PARTITION


class EpochHistory:
    """The history of one job; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epochs: deque[EpochPoint] = deque(maxlen=HISTORY_EPOCHS_MAX)
        self._slots: dict[int, Slot] = {}
        self.lag: LagPoint | None = None  # the last measured one

    @property
    def epochs(self) -> list[EpochPoint]:
        """The newest epochs, oldest first."""
        with self._lock:
            return list(self._epochs)

    @property
    def slots(self) -> list[Slot]:
        """The slots with any known value, oldest first."""
        with self._lock:
            return sorted(self._slots.values(), key=lambda slot: slot.at_ms)

    def reset(self, rows: Iterable[EpochRow]) -> None:
        """Replace the history by epochs of the table; keep the lags."""
        with self._lock:
            self._epochs.clear()
            lags = [slot for slot in self._slots.values() if slot.lag is not None]
            self._slots = {slot.at_ms: Slot(slot.at_ms, lag=slot.lag) for slot in lags}
        for row in rows:
            self.add_epoch(row)

    def add_epoch(self, row: EpochRow) -> None:
        """Add a newer epoch."""
        point = EpochPoint.from_row(row)
        with self._lock:
            before = self._epochs[-1] if self._epochs else None
            if before is not None and point.epoch <= before.epoch:
                return
            commit_ms = row.counts.phases_ms.get("commit")
            if before is not None and before.epoch == point.epoch - 1 and commit_ms is not None:
                self._epochs[-1] = replace(before, commit=commit_ms / 1_000)
            self._epochs.append(point)
            slot = self._find_slot(point.at_ms)
            delays = [ms for ms in (slot.delay_ms, point.delay_ms) if ms is not None]
            self._store_slot(
                replace(
                    slot,
                    epochs=slot.epochs + 1,
                    read=slot.read + point.read,
                    changes=slot.changes + point.changes,
                    quarantined=slot.quarantined + point.quarantined,
                    delay_ms=max(delays, default=None),
                )
            )

    def record_lag(self, lag: LagPoint) -> None:
        """Add a measured lag."""
        with self._lock:
            self.lag = lag
            self._store_slot(replace(self._find_slot(lag.at_ms), lag=lag.records))

    def _find_slot(self, at_ms: int) -> Slot:
        start = at_ms // SLOT_MS * SLOT_MS
        return self._slots.get(start) or Slot(start)

    def _store_slot(self, slot: Slot) -> None:
        self._slots[slot.at_ms] = slot
        while len(self._slots) > HISTORY_SLOTS_MAX:
            del self._slots[min(self._slots)]
