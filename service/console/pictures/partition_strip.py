"""Partitions: where each one's watermark stands on one scale of time, and who is waited for.

epoch row's `watermarks` ──► of each partition: watermark, marks ──► places between the hindmost
lags                     ──► records to read                         and the foremost
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.limits import CONSOLE_PARTITIONS
from schemas.table.epoch import EpochRow

_MARKS = {
    "idle": ("idle", "no record for a while: nobody waits for it"),
    "ahead": ("paused", "ahead of its alignment group: not read until the others have caught up"),
    "stopped": ("paused", "somebody has paused it"),
    "unread": ("unread", "the broker has records that were not read yet"),
    "fresh": ("new", "nothing has come since it was found"),
}


_HELD_SHOWN = 3
_SPAN_MS_MIN = 1_000  # what is closer together than this is at the same place


@dataclass(frozen=True, slots=True)
class PartitionMark:
    topic: str
    number: str
    watermark: int | None
    place: float  # 0 to 100, from the hindmost to the foremost
    behind_ms: int | None  # the foremost
    holds: bool  # the job's watermark waits for it
    marks: tuple[tuple[str, str], ...]  # a word, and what it means
    heard_ms: int | None  # since its last record, as of the epoch
    next_offset: int | None
    lag: int | None

    @property
    def id(self) -> str:
        return f"partition-{self.topic}-{self.number}"


@dataclass(frozen=True, slots=True)
class PartitionStrip:
    partitions: tuple[PartitionMark, ...]
    combined: int | None
    combined_place: float | None
    status: str | None
    held_by: tuple[str, ...]  # the first of those who hold it back
    holding: int  # how many do
    known: int  # how many there are; shown are those that hold the watermark back and the hindmost


def partition_strip(newest: EpochRow, lags: Mapping[str, int]) -> PartitionStrip:
    """As of the newest epoch; `lags` are those of TOPIC/PARTITION."""
    told = newest.watermarks
    sources: Mapping[str, Any] = told.get("topics", {})
    times = {
        (topic, number): state
        for topic, source in sources.items()
        for number, state in source.get("partitions", {}).items()
    }
    offsets = {
        (topic, number): offset
        for topic, partitions in newest.offsets.items()
        for number, offset in partitions.items()
    }
    combined: int | None = told.get("combined")
    known: list[int] = [
        state["watermark"] for state in times.values() if state.get("watermark") is not None
    ]
    known += [] if combined is None else [combined]
    low, high = min(known, default=None), max(known, default=None)
    held = tuple(map(str, told.get("held_by", ())))
    if combined is not None and high is not None and high - combined < _SPAN_MS_MIN:
        held = ()  # somebody is always the last; so close to the first that holds nothing back

    def place_of(watermark: int | None) -> float | None:
        if watermark is None or low is None or high is None:
            return None
        return round(100 * (1 - (high - watermark) / max(high - low, _SPAN_MS_MIN)), 2)

    def mark(topic: str, number: str) -> PartitionMark:
        state: Mapping[str, Any] = times.get((topic, number), {})
        watermark = state.get("watermark")
        return PartitionMark(
            topic=topic,
            number=number,
            watermark=watermark,
            place=place_of(watermark) or 0.0,
            behind_ms=None if watermark is None or high is None else high - watermark,
            holds=any(each.startswith(f"{topic} partition {number},") for each in held),
            marks=tuple(said for name, said in _MARKS.items() if state.get(name)),
            heard_ms=state.get("heard_ms"),
            next_offset=offsets.get((topic, number)),
            lag=lags.get(f"{topic}/{number}"),
        )

    marks = [mark(*place) for place in {*times, *offsets}]
    shown = sorted(marks, key=_urgency)[:CONSOLE_PARTITIONS]
    return PartitionStrip(
        partitions=tuple(sorted(shown, key=lambda each: (each.topic, int(each.number)))),
        combined=combined,
        combined_place=place_of(combined),
        status=told.get("status"),
        held_by=held[:_HELD_SHOWN],
        holding=len(held),
        known=len(marks),
    )


def _urgency(mark: PartitionMark) -> tuple[bool, float, str, int]:
    behind = 0 if mark.behind_ms is None else mark.behind_ms
    return not mark.holds, -behind, mark.topic, int(mark.number)
