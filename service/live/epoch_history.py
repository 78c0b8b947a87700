"""The history of a job's epochs and of its lag, for charts.

    epoch row (live table) ──► the newest epochs, each by itself
              └──────┬─────► slots of ten seconds over the last hour    ──┐ saved to a file for
    lag (lags) ──────┴─────► slots of two minutes over the last day     ──┘ the next service

It is bounded. When the service starts, it reads the saved slots, and replaces the newest ones by
the epoch rows of the table. An unknown value is a gap, not zero.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from schemas import limits
from schemas.directory.documents import read_document, write_document
from schemas.table.epoch import EpochRow

log = logging.getLogger(__name__)

SLOT_MS = limits.HISTORY_SLOT_SECONDS * 1_000
DAY_SLOT_MS = limits.HISTORY_DAY_SLOT_SECONDS * 1_000
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class EpochPoint:
    """The figures of one epoch. Durations are in seconds."""

    epoch: int
    at_ms: int  # when it was committed
    read: int
    changes: int  # changelog rows
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
        planning = (phases.get("plan", 0.0) + phases.get("check", 0.0)) / 1_000
        return cls(
            epoch=row.epoch,
            at_ms=row.committed_at // 1_000,
            read=counts.read,
            changes=counts.changelog_rows,
            delay_ms=counts.event_lag_ms,
            seconds=counts.compute_seconds,
            decoding=counts.decode_seconds,
            folding=counts.fold_seconds,
            planning=planning if phases else None,
        )


@dataclass(frozen=True, slots=True)
class Slot:
    """Some seconds of a job; None for unknown values."""

    at_ms: int  # its start
    seconds: int = limits.HISTORY_SLOT_SECONDS
    read: int = 0
    changes: int = 0
    delay_ms: int | None = None  # the maximum
    lag: int | None = None  # the last one

    @property
    def read_per_second(self) -> float:
        return self.read / self.seconds

    @property
    def changes_per_second(self) -> float:
        return self.changes / self.seconds


@dataclass(frozen=True, slots=True)
class LagPoint:
    """The lag at one moment; both offsets were read together, not seconds apart."""

    at_ms: int
    records: int
    partitions: Mapping[str, int]  # by TOPIC/PARTITION


class _Slots:
    """Slots of one length, the newest of them."""

    def __init__(self, seconds: int, count_max: int) -> None:
        self._seconds = seconds
        self._count_max = count_max
        self._slots: dict[int, Slot] = {}

    @property
    def all(self) -> list[Slot]:
        return sorted(self._slots.values(), key=lambda slot: slot.at_ms)

    def replace(self, slots: Iterable[Slot]) -> None:
        self._slots = {slot.at_ms: slot for slot in slots}

    def restart(self, since_ms: int) -> None:
        """Forget the epochs since a time; keep the lags."""
        first = since_ms // (self._seconds * 1_000) * self._seconds * 1_000
        older = [slot for slot in self.all if slot.at_ms < first]
        lags = [slot for slot in self.all if slot.at_ms >= first and slot.lag is not None]
        self.replace([*older, *(Slot(each.at_ms, each.seconds, lag=each.lag) for each in lags)])

    def add_epoch(self, point: EpochPoint) -> None:
        slot = self._find(point.at_ms)
        delays = [ms for ms in (slot.delay_ms, point.delay_ms) if ms is not None]
        self._store(
            replace(
                slot,
                read=slot.read + point.read,
                changes=slot.changes + point.changes,
                delay_ms=max(delays, default=None),
            )
        )

    def record_lag(self, lag: LagPoint) -> None:
        self._store(replace(self._find(lag.at_ms), lag=lag.records))

    def _find(self, at_ms: int) -> Slot:
        start = at_ms // (self._seconds * 1_000) * self._seconds * 1_000
        return self._slots.get(start) or Slot(start, self._seconds)

    def _store(self, slot: Slot) -> None:
        self._slots[slot.at_ms] = slot
        while len(self._slots) > self._count_max:
            del self._slots[min(self._slots)]


class EpochHistory:
    """The history of one job; thread-safe. `path` is the file that survives the service."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._epochs: deque[EpochPoint] = deque(maxlen=limits.HISTORY_EPOCHS_MAX)
        self._hour = _Slots(limits.HISTORY_SLOT_SECONDS, limits.HISTORY_SLOTS_MAX)
        self._day = _Slots(limits.HISTORY_DAY_SLOT_SECONDS, limits.HISTORY_DAY_SLOTS_MAX)
        self._saved_at = time.monotonic()
        self.lag: LagPoint | None = None  # the last measured one
        if path is not None:
            self._load(path)

    @property
    def epochs(self) -> list[EpochPoint]:
        """The newest epochs, oldest first."""
        with self._lock:
            return list(self._epochs)

    def slots_of(self, span_ms: int = HOUR_MS) -> list[Slot]:
        """Return the slots with any known value that a chart of this width shows, oldest first."""
        with self._lock:
            return (self._hour if span_ms <= HOUR_MS else self._day).all

    def reset(self, rows: Iterable[EpochRow]) -> None:
        """Replace the history by epochs of the table; keep the lags, and what is older."""
        known = list(rows)
        with self._lock:
            self._epochs.clear()
            anew = not known or known[0].epoch == 0
            since = 0 if anew else known[0].committed_at // 1_000
            for slots in (self._hour, self._day):
                slots.restart(since)
        for row in known:
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
            for slots in (self._hour, self._day):
                slots.add_epoch(point)

    def record_lag(self, lag: LagPoint) -> None:
        """Add a measured lag, and save the history now and then."""
        with self._lock:
            self.lag = lag
            for slots in (self._hour, self._day):
                slots.record_lag(lag)
        if time.monotonic() - self._saved_at >= limits.HISTORY_SAVE_SECONDS:
            self.save()

    # --- the file -------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the slots to the file; without it, only charts of the past are empty."""
        self._saved_at = time.monotonic()
        if self._path is None:
            return
        with self._lock:
            document = {"hour": self._hour.all, "day": self._day.all}
        try:
            write_document(self._path, document)
        except OSError as error:
            log.warning("cannot save the history in %s: %s", self._path, error)

    def _load(self, path: Path) -> None:
        saved = read_document(path, dict[str, list[Slot]]) or {}
        self._hour.replace(saved.get("hour", ()))
        self._day.replace(saved.get("day", ()))
