"""Charts of a job's last hour: lag, freshness, rates and epochs."""

from __future__ import annotations

from dataclasses import dataclass

from service.console.formatting import count_of, format_duration
from service.console.pictures.charts import BarChart, LineChart, draw_bars, draw_lines
from service.live.epoch_history import SLOT_MS, EpochHistory, EpochPoint

_MINUTE_MS = 60_000
SPANS_MS = (10 * _MINUTE_MS, 30 * _MINUTE_MS, 60 * _MINUTE_MS)  # the widths of charts
SPARK_MS = SPANS_MS[0]
EPOCHS_SHOWN = 60
_GAP_MS = 3 * SLOT_MS
_PHASES = ("read and decode", "fold", "shuffle and wait", "plan and check", "commit")
_WHOLE = ("time to commit",)


@dataclass(frozen=True, slots=True)
class JobCharts:
    """The charts of one span of time: as long as the known history, one hour at most."""

    span_ms: int
    lag: LineChart
    freshness: LineChart
    rates: LineChart
    epochs: BarChart


def draw_job(history: EpochHistory, now_ms: int) -> JobCharts:
    """Draw the charts of a job's page."""
    slots = history.slots
    first = next((slot.at_ms for slot in slots if slot.at_ms > now_ms - SPANS_MS[-1]), now_ms)
    span = next((each for each in SPANS_MS if now_ms - first <= each), SPANS_MS[-1])
    lag = [(slot.at_ms, slot.lag) for slot in slots if slot.lag is not None]
    delay = [(slot.at_ms, slot.delay_ms / 1_000) for slot in slots if slot.delay_ms is not None]
    return JobCharts(
        span,
        draw_lines([("records", lag)], now_ms - span, now_ms, _GAP_MS),
        draw_lines([("seconds", delay)], now_ms - span, now_ms, _GAP_MS),
        draw_rates(history, now_ms, span),
        draw_epochs(history),
    )


def draw_rates(history: EpochHistory, now_ms: int, span_ms: int) -> LineChart:
    """Draw messages read and changelog rows written per second.

    The current slot is incomplete and would look like a drop, so it is left out.
    """
    slots = [slot for slot in history.slots if slot.at_ms + SLOT_MS <= now_ms]
    read = [(slot.at_ms, slot.read_per_second) for slot in slots]
    written = [(slot.at_ms, slot.changes_per_second) for slot in slots]
    series = [("messages in", read), ("changelog rows out", written)]
    return draw_lines(series, now_ms - span_ms, now_ms, _GAP_MS)


def draw_epochs(history: EpochHistory) -> BarChart:
    """Draw the durations of the newest epochs, split into phases if known."""
    epochs = [each for each in history.epochs if each.seconds is not None][-EPOCHS_SHOWN:]
    parts = any(each.decoding is not None for each in epochs)
    bars = [(_describe_epoch(each, parts), _split_duration(each, parts)) for each in epochs]
    return draw_bars(bars, _PHASES if parts else _WHOLE, EPOCHS_SHOWN)


def _split_duration(epoch: EpochPoint, parts: bool) -> tuple[float, ...]:
    """Return the seconds of each phase; tasks of two stages may overlap, so cap each one."""
    whole = left = epoch.seconds or 0.0
    if not parts:
        return (whole,)
    found = []
    for part in (epoch.planning, epoch.decoding, epoch.folding):
        found.append(min(part or 0.0, left))
        left -= found[-1]
    planning, decoding, folding = found
    return decoding, folding, left, planning, epoch.commit or 0.0


def _describe_epoch(epoch: EpochPoint, parts: bool) -> str:
    took = f"epoch {epoch.epoch}: {format_duration(epoch.seconds)}"
    if parts:
        named = zip(_PHASES, _split_duration(epoch, parts), strict=True)
        phases = ", ".join(f"{name} {format_duration(each)}" for name, each in named if each)
        took += f" ({phases})"
    rows = f"{count_of(epoch.read, 'message')}, {count_of(epoch.changes, 'changelog row')}"
    return f"{took}, {rows}"
