"""Pictures of a job: its course as charts."""

from __future__ import annotations

from dataclasses import dataclass

from service.console import words
from service.console.pictures.charts import BarChart, LineChart, bar_chart, line_chart
from service.live.epoch_history import SLOT_MS, Course, EpochPoint

_MINUTE_MS = 60_000
SPANS_MS = (10 * _MINUTE_MS, 30 * _MINUTE_MS, 60 * _MINUTE_MS)  # that charts may show
SPARK_MS = SPANS_MS[0]
EPOCHS_SHOWN = 60
_GAP_MS = 3 * SLOT_MS
_PHASES = ("read and decode", "fold", "shuffle and wait", "plan and judge", "commit")
_WHOLE = ("until its commit",)


@dataclass(frozen=True, slots=True)
class CourseCharts:
    """A job's course over one span of time, as long as what is known of it, or an hour."""

    span_ms: int
    lag: LineChart
    freshness: LineChart
    rates: LineChart
    epochs: BarChart


def course_charts(course: Course, now_ms: int) -> CourseCharts:
    slots = course.slots
    first = next((slot.at_ms for slot in slots if slot.at_ms > now_ms - SPANS_MS[-1]), now_ms)
    span = next((each for each in SPANS_MS if now_ms - first <= each), SPANS_MS[-1])
    lag = [(slot.at_ms, slot.lag) for slot in slots if slot.lag is not None]
    delay = [(slot.at_ms, slot.delay_ms / 1_000) for slot in slots if slot.delay_ms is not None]
    return CourseCharts(
        span,
        line_chart([("records", lag)], now_ms - span, now_ms, _GAP_MS),
        line_chart([("seconds", delay)], now_ms - span, now_ms, _GAP_MS),
        rate_chart(course, now_ms, span),
        epoch_chart(course),
    )


def rate_chart(course: Course, now_ms: int, span_ms: int) -> LineChart:
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
    """The longest tasks of two stages may overlap, so that each is bounded by what is left."""
    whole = left = epoch.seconds or 0.0
    if not parts:
        return (whole,)
    found = []
    for part in (epoch.planning, epoch.decoding, epoch.folding):
        found.append(min(part or 0.0, left))
        left -= found[-1]
    planning, decoding, folding = found
    return decoding, folding, left, planning, epoch.commit or 0.0


def _epoch_told(epoch: EpochPoint, parts: bool) -> str:
    took = f"epoch {epoch.epoch}: {words.duration(epoch.seconds)}"
    if parts:
        named = zip(_PHASES, _durations(epoch, parts), strict=True)
        told = ", ".join(f"{name} {words.duration(each)}" for name, each in named if each)
        took += f" ({told})"
    rows = f"{words.plural(epoch.read, 'message')}, {words.plural(epoch.changes, 'changelog row')}"
    return f"{took}, {rows}"
