"""Charts: the shapes of line and bar charts; templates/charts.html renders them.

    values over time ──► scale ──► paths and bars of a picture 600 x 120 ──► SVG, stretched

SVG stretches shapes and would stretch text, so labels are HTML around the picture. An unknown value
is a gap in a line; a single value between two gaps is a dot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from service.console.formatting import count_of, format_duration, format_time_of_day
from service.live.epoch_history import DAY_SLOT_MS, HOUR_MS, SLOT_MS, EpochHistory, EpochPoint

WIDTH, HEIGHT = 600, 120
_HEADROOM = 1.02
_BAR_GAP = 0.15  # of a bar's width
_MINUTE_MS = 60_000
_TICK_STEPS_MS = tuple(_MINUTE_MS * each for each in (1, 2, 5, 10, 30, 60, 240, 1_440, 10_080))
_TICKS_MAX = 7
_TICK_MARGIN = 4  # per cent; a label nearer to the end would be cut

# Times and values; None for an unknown value.
Points = Sequence[tuple[int, float | None]]


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    hue: int  # 1 to 5
    path: str
    area: str
    now: float | None
    highest: float | None


@dataclass(frozen=True, slots=True)
class LineChart:
    lines: tuple[Line, ...]
    top: float  # of the scale, which starts at 0
    since_ms: int
    until_ms: int

    @property
    def ticks(self) -> list[tuple[str, str]]:
        """Round times of the day: the position in per cent, and HH:MM."""
        span = self.until_ms - self.since_ms
        step = next(each for each in _TICK_STEPS_MS if span / each <= _TICKS_MAX)
        first = -(-self.since_ms // step) * step
        found = []
        for at in range(first, self.until_ms + 1, step):
            percent = 100 * (at - self.since_ms) / max(1, span)
            if _TICK_MARGIN <= percent <= 100 - _TICK_MARGIN:
                found.append((f"{percent:.2f}", format_time_of_day(at)[:5]))
        return found

    @property
    def known(self) -> bool:
        """Whether any line has a value."""
        return any(line.highest is not None for line in self.lines)


@dataclass(frozen=True, slots=True)
class Piece:
    """One segment of a stacked bar."""

    name: str
    hue: int
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Bar:
    title: str
    x: float
    width: float
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class BarChart:
    bars: tuple[Bar, ...]
    names: tuple[tuple[str, int], ...]  # of the pieces, with their hues
    top: float


def draw_lines(
    series: Sequence[tuple[str, Points]], since_ms: int, until_ms: int, gap_ms: int
) -> LineChart:
    """Draw lines over one span of time; points more than `gap_ms` apart leave a gap."""
    shown = [
        (name, [point for point in points if since_ms <= point[0] <= until_ms])
        for name, points in series
    ]
    known = [value for _, points in shown for _, value in points if value is not None]
    top = round_up(max(known, default=0.0) * _HEADROOM) or 1.0
    lines = tuple(
        _draw_line(name, hue, points, (since_ms, until_ms), top, gap_ms)
        for hue, (name, points) in enumerate(shown, 1)
    )
    return LineChart(lines, top, since_ms, until_ms)


def _draw_line(
    name: str, hue: int, points: Points, span: tuple[int, int], top: float, gap_ms: int
) -> Line:
    since, until = span
    runs = _split_runs(points, gap_ms)
    path: list[str] = []
    area: list[str] = []
    for run in runs:
        positions = [
            (WIDTH * (at - since) / max(1, until - since), HEIGHT - HEIGHT * value / top)
            for at, value in run
        ]
        steps = [f"{x:.1f} {y:.1f}" for x, y in positions]
        # A line of no length has round ends, and so is a dot.
        path.append("M" + "L".join(steps) if len(steps) > 1 else f"M{steps[0]}h0")
        if len(positions) > 1:
            first, last = positions[0][0], positions[-1][0]
            area.append(f"M{first:.1f} {HEIGHT}L{'L'.join(steps)}L{last:.1f} {HEIGHT}Z")
    values = [value for run in runs for _, value in run]
    now = None
    if runs and until - runs[-1][-1][0] <= 2 * gap_ms:
        now = runs[-1][-1][1]
    return Line(name, hue, "".join(path), "".join(area), now, max(values, default=None))


def _split_runs(points: Points, gap_ms: int) -> list[list[tuple[int, float]]]:
    """Return the points as runs without a gap."""
    runs: list[list[tuple[int, float]]] = []
    before: int | None = None
    for at, value in points:
        if value is None:
            before = None
            continue
        if before is None or at - before > gap_ms:
            runs.append([])
        runs[-1].append((at, value))
        before = at
    return runs


def draw_bars(
    bars: Sequence[tuple[str, Sequence[float]]], names: Sequence[str], slots: int
) -> BarChart:
    """Draw stacked bars, right-aligned in a picture with room for `slots` bars."""
    top = round_up(max((sum(values) for _, values in bars), default=0.0) * _HEADROOM) or 1.0
    width = WIDTH / slots
    shown = []
    first = slots - len(bars)
    for index, (title, values) in enumerate(bars):
        pieces, bottom = [], float(HEIGHT)
        for hue, (name, value) in enumerate(zip(names, values, strict=True), 1):
            height = HEIGHT * value / top
            bottom -= height
            if value > 0:
                pieces.append(Piece(name, hue, round(bottom, 2), round(height, 2)))
        x = width * (first + index) + width * _BAR_GAP / 2
        shown.append(Bar(title, round(x, 2), round(width * (1 - _BAR_GAP), 2), tuple(pieces)))
    return BarChart(tuple(shown), tuple((name, hue) for hue, name in enumerate(names, 1)), top)


def round_up(value: float) -> float:
    """Return the next of 1, 2, 5, 10, 20, 50 ... as the end of a scale."""
    if value <= 0:
        return 0.0
    step = 10.0 ** math.floor(math.log10(value))
    return next((step * each for each in (1, 2, 5) if value <= step * each * (1 + 1e-9)), step * 10)


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
