"""Pictures of a job: its course as charts."""

from __future__ import annotations

from service.console import words
from service.console.charts import BarChart, LineChart, bar_chart, line_chart
from service.course import SLOT_MS, Course, EpochPoint

HOUR_MS = 3_600_000
SPARK_MS = 600_000
EPOCHS_SHOWN = 60
_GAP_MS = 3 * SLOT_MS
_PHASES = ("read and decode", "fold", "plan, shuffle and wait")
_WHOLE = ("until its commit",)


def lag_chart(course: Course, now_ms: int) -> LineChart:
    points = [(slot.at_ms, slot.lag) for slot in course.slots if slot.lag is not None]
    return line_chart([("records", points)], now_ms - HOUR_MS, now_ms, _GAP_MS)


def freshness_chart(course: Course, now_ms: int) -> LineChart:
    """Seconds from a row's own time to the moment its result stood; the longest of each slot."""
    points = [
        (slot.at_ms, slot.delay_ms / 1_000) for slot in course.slots if slot.delay_ms is not None
    ]
    return line_chart([("seconds", points)], now_ms - HOUR_MS, now_ms, _GAP_MS)


def rate_chart(course: Course, now_ms: int, span_ms: int = HOUR_MS) -> LineChart:
    """What was read and what came out. The slot of now is not over, and would look like a fall."""
    slots = [slot for slot in course.slots if slot.at_ms + SLOT_MS <= now_ms]
    read = [(slot.at_ms, slot.read_per_second) for slot in slots]
    told = [(slot.at_ms, slot.changes_per_second) for slot in slots]
    series = [("messages in", read), ("changelog rows out", told)]
    return line_chart(series, now_ms - span_ms, now_ms, _GAP_MS)


def epoch_chart(course: Course) -> BarChart:
    """The newest epochs, each with where its time went; only the whole where no parts are known."""
    epochs = [each for each in course.epochs if each.seconds is not None][-EPOCHS_SHOWN:]
    parts = any(each.decoding is not None for each in epochs)
    bars = [(_epoch_told(each, parts), _durations(each, parts)) for each in epochs]
    return bar_chart(bars, _PHASES if parts else _WHOLE, EPOCHS_SHOWN)


def _durations(epoch: EpochPoint, parts: bool) -> tuple[float, ...]:
    """The longest tasks, which did not all run at once, so that they may be longer than it all."""
    whole = epoch.seconds or 0.0
    if not parts:
        return (whole,)
    decoding = min(epoch.decoding or 0.0, whole)
    folding = min(epoch.folding or 0.0, whole - decoding)
    return decoding, folding, whole - decoding - folding


def _epoch_told(epoch: EpochPoint, parts: bool) -> str:
    took = f"epoch {epoch.epoch}: {words.duration(epoch.seconds)}"
    if parts:
        named = zip(_PHASES, _durations(epoch, parts), strict=True)
        took += f" ({', '.join(f'{name} {words.duration(each)}' for name, each in named)})"
    rows = f"{words.plural(epoch.read, 'message')}, {words.plural(epoch.changes, 'changelog row')}"
    return f"{took}, {rows}"
