"""Charts of a job's last minutes, hour or day: lag, freshness, rates and epochs."""

from __future__ import annotations

from dataclasses import dataclass

from service.console.formatting import count_of, format_duration
from service.console.pictures.charts import BarChart, LineChart, draw_bars, draw_lines
from service.live.epoch_history import DAY_SLOT_MS, HOUR_MS, SLOT_MS, EpochHistory, EpochPoint

_MINUTE_MS = 60_000
SPANS_MS = {"10m": 10 * _MINUTE_MS, "1h": HOUR_MS, "24h": 24 * HOUR_MS}  # widths of charts
SPARK_MS = SPANS_MS["10m"]
EPOCHS_SHOWN = 60
_GAP_SLOTS = 3  # without a value, after which a line ends
_PHASES = ("read and decode", "fold", "shuffle and wait", "plan and check", "commit")
_WHOLE = ("time to commit",)


@dataclass(frozen=True, slots=True)
class JobCharts:
    """The charts of one span of time."""

    span_ms: int
    lag: LineChart
    freshness: LineChart
    rates: LineChart
    epochs: BarChart


def draw_job(history: EpochHistory, now_ms: int, span_ms: int) -> JobCharts:
    """Draw the charts of a job's page."""
    slots, since = history.slots_of(span_ms), now_ms - span_ms
    lag = [(slot.at_ms, slot.lag) for slot in slots if slot.lag is not None]
    delay = [(slot.at_ms, slot.delay_ms / 1_000) for slot in slots if slot.delay_ms is not None]
    gap = _GAP_SLOTS * _slot_ms(span_ms)
    return JobCharts(
        span_ms,
        draw_lines([("records", lag)], since, now_ms, gap),
        draw_lines([("seconds", delay)], since, now_ms, gap),
        draw_rates(history, now_ms, span_ms),
        draw_epochs(history),
    )


def _slot_ms(span_ms: int) -> int:
    return SLOT_MS if span_ms <= HOUR_MS else DAY_SLOT_MS


def draw_rates(history: EpochHistory, now_ms: int, span_ms: int) -> LineChart:
    """Draw messages read and changelog rows written per second.

    The current slot is incomplete and would look like a drop, so it is left out.
    """
    width = _slot_ms(span_ms)
    slots = [slot for slot in history.slots_of(span_ms) if slot.at_ms + width <= now_ms]
    read = [(slot.at_ms, slot.read_per_second) for slot in slots]
    written = [(slot.at_ms, slot.changes_per_second) for slot in slots]
    series = [("messages in", read), ("changelog rows out", written)]
    return draw_lines(series, now_ms - span_ms, now_ms, _GAP_SLOTS * width)


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
