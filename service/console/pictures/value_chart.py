"""The course of one value over the epochs, as a line of steps: it stays until an epoch changes it.

The scale is from the least to the greatest value that is shown, so that 998 to 991 is seen as well
as 1 to 1,000,000; its ends are written beside it. NULL, and a group that is gone, are gaps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from service.console.pictures.charts import HEIGHT, WIDTH

_ROOM = 0.08  # of the scale, above and below


@dataclass(frozen=True, slots=True)
class CourseChart:
    column: str
    path: str
    falls: str  # dots where an extreme went the other way
    here: str  # the epoch that is asked about
    least: Any  # values as the row has them
    greatest: Any
    now: Any
    first: int
    last: int


def course_chart(
    column: str,
    points: Sequence[tuple[int, Any]],
    last: int,
    falls: Collection[int] = (),
    here: int | None = None,
) -> CourseChart | None:
    """`points` are epochs and the values since then; None where there is no number to draw."""
    numbers = [(epoch, value, _number(value)) for epoch, value in points]
    known = [(value, number) for _, value, number in numbers if number is not None]
    if not known:
        return None
    least, greatest = min(known, key=lambda each: each[1]), max(known, key=lambda each: each[1])
    room = (greatest[1] - least[1]) * _ROOM or max(abs(greatest[1]) * _ROOM, 1.0)
    low, high = least[1] - room, greatest[1] + room
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
        if epoch in falls:
            dots.append(f"M{x(epoch):.1f} {y(number):.1f}h0")
    asked = here is not None and first <= here <= last
    return CourseChart(
        column=column,
        path="".join(path),
        falls="".join(dots),
        here=f"M{x(here or 0):.1f} 0V{HEIGHT}" if asked else "",
        least=least[0],
        greatest=greatest[0],
        now=points[-1][1],
        first=first,
        last=last,
    )


def _number(value: Any) -> float | None:
    """For the picture only; decimals and whole numbers beyond 2^53 come as text."""
    if value is None or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
