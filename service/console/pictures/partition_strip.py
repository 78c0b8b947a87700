"""Partitions: their watermarks on one scale of time, their status and lag.

epoch row's `watermarks` ──► watermark and status of each partition ──► positions between the lowest
lags                     ──► unread records                             and the highest watermark
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.limits import CONSOLE_PARTITIONS
from schemas.table.epoch import EpochRow, HoldingPartition, PartitionSnapshot

_MARKS = {
    "idle": ("idle", "no records for a while: the watermark does not wait for it"),
    "ahead": ("paused", "ahead of its alignment group: not read until the others catch up"),
    "stopped": ("paused", "paused by an operator"),
    "unread": ("unread", "the broker has records that the job has not read yet"),
    "fresh": ("new", "no records since the job found the partition"),
}


_HELD_SHOWN = 3
_SPAN_MS_MIN = 1_000  # watermarks closer together than this have the same position


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition as of the newest epoch."""

    topic: str
    number: str
    watermark: int | None
    position: float  # 0 to 100, from the lowest to the highest watermark
    behind_ms: int | None  # the highest watermark
    holds: bool  # whether the job's watermark waits for it
    marks: tuple[tuple[str, str], ...]  # words like idle, and their meanings
    heard_ms: int | None  # since its last record, as of the epoch
    next_offset: int | None
    lag: int | None

    @property
    def id(self) -> str:
        return f"partition-{self.topic}-{self.number}"


@dataclass(frozen=True, slots=True)
class PartitionStrip:
    """The partitions that hold the watermark back, and those furthest behind."""

    partitions: tuple[PartitionStatus, ...]
    combined: int | None
    combined_position: float | None
    status: str | None
    held_by: tuple[str, ...]  # descriptions of the first partitions that hold it back
    holding: int  # the number of partitions that hold it back
    known: int  # the number of all partitions


def draw_partitions(newest: EpochRow, lags: Mapping[str, int]) -> PartitionStrip:
    """Draw the partitions as of the newest epoch; keys of `lags` are TOPIC/PARTITION."""
    time = newest.time
    times = {
        (topic, number): state
        for topic, source in time.topics.items()
        for number, state in source.partitions.items()
    }
    offsets = {
        (topic, number): offset
        for topic, partitions in newest.offsets.items()
        for number, offset in partitions.items()
    }
    combined = time.combined
    known = [state.watermark for state in times.values() if state.watermark is not None]
    known += [] if combined is None else [combined]
    low, high = min(known, default=None), max(known, default=None)
    holding, held_by = frozenset(time.holding), tuple(time.held_by)
    if combined is not None and high is not None and high - combined < _SPAN_MS_MIN:
        # Some partition is always last. This close to the leader, it holds nothing back.
        holding, held_by = frozenset(), ()

    def find_position(watermark: int | None) -> float | None:
        if watermark is None or low is None or high is None:
            return None
        return round(100 * (1 - (high - watermark) / max(high - low, _SPAN_MS_MIN)), 2)

    def describe(topic: str, number: str) -> PartitionStatus:
        state = times.get((topic, number), PartitionSnapshot())
        watermark = state.watermark
        return PartitionStatus(
            topic=topic,
            number=number,
            watermark=watermark,
            position=find_position(watermark) or 0.0,
            behind_ms=None if watermark is None or high is None else high - watermark,
            holds=HoldingPartition(topic, int(number)) in holding,
            marks=tuple(mark for name, mark in _MARKS.items() if getattr(state, name)),
            heard_ms=state.heard_ms,
            next_offset=offsets.get((topic, number)),
            lag=lags.get(f"{topic}/{number}"),
        )

    statuses = [describe(*partition) for partition in {*times, *offsets}]
    shown = sorted(statuses, key=_rank)[:CONSOLE_PARTITIONS]
    return PartitionStrip(
        partitions=tuple(sorted(shown, key=lambda each: (each.topic, int(each.number)))),
        combined=combined,
        combined_position=find_position(combined),
        status=time.status if newest.watermarks else None,
        held_by=held_by[:_HELD_SHOWN],
        holding=len(held_by),
        known=len(statuses),
    )


def _rank(status: PartitionStatus) -> tuple[bool, float, str, int]:
    """Return the sort key: holding partitions first, then those furthest behind."""
    behind = 0 if status.behind_ms is None else status.behind_ms
    return not status.holds, -behind, status.topic, int(status.number)
