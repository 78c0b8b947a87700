"""Watermark generators: compute the watermark of one partition from its row times.

    times of records ──► seen (the greatest) ──┬─► emit(now): the periodic watermark
    marked records ────────────────────────────┴─► observe(): the watermark of a mark, at once

A watermark T means: every row with time <= T has arrived. So a watermark never goes back, and a
generator that follows the rows has none before the first row. There is no clock here: the caller
passes `now`, in epoch milliseconds like all times.

A generator that only needs the greatest time observes a range of records with `observe`. Marks,
rows that are checked one by one and operators' classes need the rows in their order: then the task
calls `on_event` and `on_mark`, and the driver takes the generator's state after them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.spec.operator_classes import GeneratorClass
from schemas.spec.watermark import Mark, Watermark
from schemas.table.epoch import END_OF_TIME, PartitionSnapshot


class PartitionGenerator:
    """Base class: stores the greatest time observed and the last watermark emitted.

    Operators derive their classes from jobs.core.time.custom_generator instead.
    """

    __slots__ = ("last", "seen")

    def __init__(self) -> None:
        self.seen: int | None = None
        self.last: int | None = None

    def event(self, time: int | None, marked: bool = False, now: int = 0) -> int | None:
        """Observe one row, which may be a mark; return a watermark if it emits one at once."""
        at_once = self.on_event(time, {}, now)
        return self.on_mark(time, {}, now) if marked else at_once

    def on_event(self, time: int | None, row: Mapping[str, Any], now: int) -> int | None:
        """Observe one row; return a watermark if it emits one at once."""
        return self.observe(time, None, now)

    def on_mark(self, time: int | None, row: Mapping[str, Any], now: int) -> int | None:
        """Observe the mark in the row of the last `on_event`; `time` is what the mark carries."""
        return self.observe(None, time, now)

    def observe(self, latest: int | None, marked: int | None, now: int) -> int | None:
        """Observe a range of records; return a watermark if it emits one at once.

        `latest` is its greatest time, `marked` the greatest time up to its last marked record. Each
        is None if no record has a time, or none is marked.
        """
        self.seen = latest_of(self.seen, latest)
        return None

    def emit(self, now: int) -> int | None:
        """Return the periodic watermark if it is higher than the last one, else None."""
        return self._raise_to(self._candidate(now))

    def end(self) -> int:
        """Return the watermark of the end, behind which no other one follows."""
        self.last = END_OF_TIME
        return END_OF_TIME

    def _candidate(self, now: int) -> int | None:
        return None

    def _raise_to(self, candidate: int | None) -> int | None:
        if candidate is None or (self.last is not None and candidate <= self.last):
            return None
        self.last = candidate
        return candidate

    def snapshot(self) -> PartitionSnapshot:
        return PartitionSnapshot(seen=self.seen, watermark=self.last)

    def restore(self, state: PartitionSnapshot) -> None:
        self.seen, self.last = state.seen, state.watermark


class Bounded(PartitionGenerator):
    """Watermark for rows that come at most `delay` late: the greatest time - `delay` - 1.

    The - 1 is there because another row with the greatest time may follow. `exact` omits it, as SQL
    and Flink's oldest assigners do.
    """

    __slots__ = ("_behind",)

    def __init__(self, delay: int, *, exact: bool = False) -> None:
        super().__init__()
        self._behind = delay if exact else delay + 1

    def _candidate(self, now: int) -> int | None:
        return None if self.seen is None else self.seen - self._behind


class Punctuated(PartitionGenerator):
    """Emits the greatest time - `delay` at each marked record, at once and never periodically.

    With `own_time` it emits the time that the mark carries - `delay`, whatever came before.
    """

    __slots__ = ("_delay", "_own_time")

    def __init__(self, delay: int, *, own_time: bool = False) -> None:
        super().__init__()
        self._delay = delay
        self._own_time = own_time

    def observe(self, latest: int | None, marked: int | None, now: int) -> int | None:
        at_mark = marked
        if marked is not None and not self._own_time:
            at_mark = latest_of(self.seen, marked)
        super().observe(latest, None, now)
        return self._raise_to(None if at_mark is None else at_mark - self._delay)


class Lag(PartitionGenerator):
    """Emits now - `delay`; it needs no rows."""

    __slots__ = ("_delay",)

    def __init__(self, delay: int) -> None:
        super().__init__()
        self._delay = delay

    def _candidate(self, now: int) -> int | None:
        return now - self._delay


class Automatic(PartitionGenerator):
    """Watermark of ingestion times: the last multiple of `every` before now.

    Multiples make sources with different clocks move together. A record that passes a multiple
    emits it before the timer does. A record of this same millisecond may follow, so a multiple
    counts only after it has passed.
    """

    __slots__ = ("_every",)

    def __init__(self, every: int) -> None:
        super().__init__()
        self._every = every

    def observe(self, latest: int | None, marked: int | None, now: int) -> int | None:
        self.seen = latest_of(self.seen, now)
        return self.emit(now)

    def _candidate(self, now: int) -> int | None:
        return (now - 1) // self._every * self._every


class Followed(PartitionGenerator):
    """Emits the watermarks of the job that writes the topic - `delay`; its rows move nothing."""

    __slots__ = ("_delay",)

    def __init__(self, delay: int) -> None:
        super().__init__()
        self._delay = delay

    def follow(self, watermark: int) -> int | None:
        """Observe the other job's watermark; return the partition's own if it is higher."""
        ended = watermark >= END_OF_TIME
        return self._raise_to(watermark if ended else watermark - self._delay)


def make_generator(watermark: Watermark) -> PartitionGenerator:
    """Return a new generator of the kind that a spec names, for one partition."""
    if watermark.follows:
        return Followed(watermark.delay_ms)
    match watermark.generator:
        case "bounded":
            return Bounded(watermark.delay_ms, exact=watermark.exact)
        case "monotonous":
            return Bounded(0)
        case "punctuated":
            own_time = isinstance(watermark.marker, Mark)
            return Punctuated(watermark.delay_ms, own_time=own_time)
        case "lag":
            return Lag(watermark.delay_ms)
        case "automatic":
            return Automatic(watermark.period_ms)
        case GeneratorClass(path=path):
            raise ValueError(f"{path} is a custom generator; give JobTime a function that makes it")


def latest_of(one: int | None, other: int | None) -> int | None:
    """Return the later of two times; None means unknown."""
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)
