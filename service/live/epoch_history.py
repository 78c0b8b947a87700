"""The course of a job: how its last epochs went, and how far behind it was, for pictures.

    epoch row (follower) ──► the newest epochs, each by itself
              └──────┬─────► slots of ten seconds over the last hour
    lag (lags) ──────┘

It is in memory and bounded; a service that begins fills it from the table's epoch rows, which hold
all of it but the lag. What nobody looked at is a gap and not a zero.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from schemas.limits import COURSE_EPOCHS_MAX, COURSE_SLOT_SECONDS, COURSE_SLOTS_MAX
from schemas.table.epoch import EpochRow

SLOT_MS = COURSE_SLOT_SECONDS * 1_000


@dataclass(frozen=True, slots=True)
class EpochPoint:
    """One epoch, as far as pictures need it. Durations are seconds."""

    epoch: int
    kind: str
    at_ms: int  # when it was committed
    read: int
    changes: int  # changelog rows
    quarantined: int
    groups: int | None
    watermark: int | None
    delay_ms: int | None  # from the greatest time of its rows to its commit
    seconds: float | None  # until its commit
    decoding: float | None  # of that, the longest task that read and decoded
    folding: float | None  # and the longest one that folded
    planning: float | None  # before its tasks, and judging them after
    commit: float | None = None  # which the epoch after it tells

    @classmethod
    def of(cls, row: EpochRow) -> EpochPoint:
        counters = row.counters
        phases = counters.get("phases_ms") or {}
        planning = (phases.get("plan", 0.0) + phases.get("judge", 0.0)) / 1_000
        return cls(
            epoch=row.epoch,
            kind=row.kind,
            at_ms=row.committed_at // 1_000,
            read=int(counters.get("read") or 0),
            changes=int(counters.get("changelog_rows") or 0),
            quarantined=int(counters.get("quarantined") or 0),
            groups=counters.get("groups"),
            watermark=row.watermarks.get("combined"),
            delay_ms=counters.get("event_lag_ms"),
            seconds=counters.get("compute_seconds"),
            decoding=counters.get("decode_seconds"),
            folding=counters.get("fold_seconds"),
            planning=planning if phases else None,
        )


@dataclass(frozen=True, slots=True)
class Slot:
    """Ten seconds of a job. None is what nobody knows."""

    at_ms: int  # when it begins
    epochs: int = 0
    read: int = 0
    changes: int = 0
    quarantined: int = 0
    delay_ms: int | None = None  # the longest
    lag: int | None = None  # the last

    @property
    def read_per_second(self) -> float:
        return self.read / COURSE_SLOT_SECONDS

    @property
    def changes_per_second(self) -> float:
        return self.changes / COURSE_SLOT_SECONDS


@dataclass(frozen=True, slots=True)
class Behind:
    """How far a job was behind at one moment: both ends were looked at together, and not one of
    them some seconds before the other."""

    at_ms: int
    records: int
    partitions: Mapping[str, int]  # of TOPIC/PARTITION


class Course:
    """Of one job; written by its follower and by the lags, read by pages."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epochs: deque[EpochPoint] = deque(maxlen=COURSE_EPOCHS_MAX)
        self._slots: dict[int, Slot] = {}
        self.lag: Behind | None = None  # as it was looked at last

    @property
    def epochs(self) -> list[EpochPoint]:
        """The newest epochs, oldest first."""
        with self._lock:
            return list(self._epochs)

    @property
    def slots(self) -> list[Slot]:
        """Those that anything is known of, oldest first."""
        with self._lock:
            return sorted(self._slots.values(), key=lambda slot: slot.at_ms)

    def begin(self, rows: Iterable[EpochRow]) -> None:
        """Epochs that were there before anybody followed; the course of before is forgotten."""
        with self._lock:
            self._epochs.clear()
            lags = [slot for slot in self._slots.values() if slot.lag is not None]
            self._slots = {slot.at_ms: Slot(slot.at_ms, lag=slot.lag) for slot in lags}
        for row in rows:
            self.reached(row)

    def reached(self, row: EpochRow) -> None:
        point = EpochPoint.of(row)
        with self._lock:
            before = self._epochs[-1] if self._epochs else None
            if before is not None and point.epoch <= before.epoch:
                return
            commit_ms = row.counters.get("phases_ms", {}).get("commit")
            if before is not None and before.epoch == point.epoch - 1 and commit_ms is not None:
                self._epochs[-1] = replace(before, commit=commit_ms / 1_000)
            self._epochs.append(point)
            slot = self._slot(point.at_ms)
            delays = [ms for ms in (slot.delay_ms, point.delay_ms) if ms is not None]
            self._put(
                replace(
                    slot,
                    epochs=slot.epochs + 1,
                    read=slot.read + point.read,
                    changes=slot.changes + point.changes,
                    quarantined=slot.quarantined + point.quarantined,
                    delay_ms=max(delays, default=None),
                )
            )

    def behind(self, lag: Behind) -> None:
        """What the lag was at a moment."""
        with self._lock:
            self.lag = lag
            self._put(replace(self._slot(lag.at_ms), lag=lag.records))

    def _slot(self, at_ms: int) -> Slot:
        begins = at_ms // SLOT_MS * SLOT_MS
        return self._slots.get(begins) or Slot(begins)

    def _put(self, slot: Slot) -> None:
        self._slots[slot.at_ms] = slot
        while len(self._slots) > COURSE_SLOTS_MAX:
            del self._slots[min(self._slots)]
