"""The distribution of a multiset of numbers: the count of values in each part of the range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from service.console.pictures.charts import HEIGHT, WIDTH
from service.console.pictures.value_chart import parse_number

_BINS = 24
_VALUES_MIN = 8  # fewer values are clearer as a list
_GAP = 0.12  # of a bar's width


@dataclass(frozen=True, slots=True)
class HistogramBar:
    title: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Histogram:
    bars: tuple[HistogramBar, ...]
    least: Any  # values as the multiset has them
    greatest: Any
    most: int  # rows in the highest bar
    rows: int


def draw_histogram(entries: Sequence[tuple[Any, int]]) -> Histogram | None:
    """Draw values with their multiplicities; None if they are few, or not numbers."""
    known = [
        (number, value, times)
        for value, times in entries
        if times > 0 and (number := parse_number(value)) is not None
    ]
    if len(known) < max(_VALUES_MIN, len(entries)):
        return None
    least, greatest = min(known), max(known)
    low, span = least[0], (greatest[0] - least[0]) or 1.0
    counts = [0] * _BINS
    for number, _, times in known:
        counts[min(int(_BINS * (number - low) / span), _BINS - 1)] += times
    most, width = max(counts), WIDTH / _BINS
    bars = tuple(
        HistogramBar(
            title=f"{low + span * at / _BINS:.6g} to {low + span * (at + 1) / _BINS:.6g}: {count}",
            x=round(width * (at + _GAP / 2), 2),
            y=round(HEIGHT - HEIGHT * count / most, 2),
            width=round(width * (1 - _GAP), 2),
            height=round(HEIGHT * count / most, 2),
        )
        for at, count in enumerate(counts)
        if count
    )
    return Histogram(bars, least[1], greatest[1], most, sum(counts))
