"""The history of one value over the epochs, as a step line.

The scale runs from the least to the greatest value shown, so that 998 to 991 is as visible as 1 to
1,000,000; the page writes its ends beside it. NULL and a removed group are gaps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from service.console.pictures.charts import HEIGHT, WIDTH

_MARGIN = 0.08  # of the scale, above and below


@dataclass(frozen=True, slots=True)
class ValueChart:
    """The step line of one result column."""

    column: str
    path: str
    extremes: str  # dots at extreme changes
    here: str  # a line at the highlighted epoch
    least: Any  # values as the row has them
    greatest: Any
    now: Any
    first: int
    last: int


def draw_value(
    column: str,
    points: Sequence[tuple[int, Any]],
    last: int,
    extremes: Collection[int] = (),
    here: int | None = None,
) -> ValueChart | None:
    """Draw epochs and the values since then; None if no value is a number."""
    numbers = [(epoch, value, parse_number(value)) for epoch, value in points]
    known = [(value, number) for _, value, number in numbers if number is not None]
    if not known:
        return None
    least, greatest = min(known, key=lambda each: each[1]), max(known, key=lambda each: each[1])
    margin = (greatest[1] - least[1]) * _MARGIN or max(abs(greatest[1]) * _MARGIN, 1.0)
    low, high = least[1] - margin, greatest[1] + margin
    first = points[0][0]

    def x(epoch: int) -> float:
        return WIDTH * (epoch - first) / max(1, last - first)

    def y(number: float) -> float:
        return HEIGHT - HEIGHT * (number - low) / (high - low)

    path, dots, drawing = [], [], False
    for index, (epoch, _, number) in enumerate(numbers):
        until = numbers[index + 1][0] if index + 1 < len(numbers) else last
        if number is None:
            drawing = False
            continue
        path.append(f"{'L' if drawing else 'M'}{x(epoch):.1f} {y(number):.1f}H{x(until):.1f}")
        drawing = True
        if epoch in extremes:
            dots.append(f"M{x(epoch):.1f} {y(number):.1f}h0")
    visible = here is not None and first <= here <= last
    return ValueChart(
        column=column,
        path="".join(path),
        extremes="".join(dots),
        here=f"M{x(here or 0):.1f} 0V{HEIGHT}" if visible else "",
        least=least[0],
        greatest=greatest[0],
        now=points[-1][1],
        first=first,
        last=last,
    )


def parse_number(value: Any) -> float | None:
    """Return a value as a float, for the picture only; large numbers come as text."""
    if value is None or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


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
