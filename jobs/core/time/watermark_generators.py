"""Generators: from the times that one partition has shown to the watermark it stands for.

    times of records ──► seen (the greatest) ──┬─► emit(now): the periodic watermark
    marks among them ──────────────────────────┴─► observe(): the watermark of a mark, at once

A watermark T says: every row with time <= T has arrived. So none goes backwards, and those that
follow the rows say nothing before the first one. There is no clock here: now is an argument, in
epoch milliseconds, as all times are.

A generator takes a range of records at a time, as the driver's tasks report it: the greatest time
in the range, and the greatest one up to its last mark. Times only rise to their maximum, so the
last mark of a range stands for all of them; `event` is a range of one record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.spec.job import GeneratorClass, Watermark


class Generator:
    """What every generator remembers: the greatest time seen, and the last watermark given."""

    __slots__ = ("last", "seen")

    def __init__(self) -> None:
        self.seen: int | None = None
        self.last: int | None = None

    @classmethod
    def of(cls, watermark: Watermark) -> Generator:
        """How a class of the operator's is made; one with settings of its own reads them here."""
        return cls()

    def event(self, time: int | None, marked: bool = False, now: int = 0) -> int | None:
        """One record; a watermark where it brings one at once."""
        return self.observe(time, time if marked else None, now)

    def observe(self, latest: int | None, marked: int | None, now: int) -> int | None:
        """A range of records that was read: its greatest time, and the greatest one up to its last
        mark; None where no record has a time, or none is marked."""
        self.seen = later(self.seen, latest)
        return None

    def emit(self, now: int) -> int | None:
        """The periodic watermark, where there is a higher one than the last."""
        return self._risen(self._candidate(now))

    def _candidate(self, now: int) -> int | None:
        return None

    def _risen(self, candidate: int | None) -> int | None:
        if candidate is None or (self.last is not None and candidate <= self.last):
            return None
        self.last = candidate
        return candidate

    def snapshot(self) -> dict[str, Any]:
        state = {"seen": self.seen, "watermark": self.last}
        return {name: time for name, time in state.items() if time is not None}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.seen, self.last = state.get("seen"), state.get("watermark")


class Bounded(Generator):
    """Rows come at most `delay` late. Another row with the greatest time may still come, hence the
    - 1; `exact` is the form without it, as in SQL and in the oldest assigners."""

    __slots__ = ("_behind",)

    def __init__(self, delay: int, *, exact: bool = False) -> None:
        super().__init__()
        self._behind = delay if exact else delay + 1

    def _candidate(self, now: int) -> int | None:
        return None if self.seen is None else self.seen - self._behind


class Punctuated(Generator):
    """A marked record gives the greatest time so far - `delay`, at once; nothing is periodic."""

    __slots__ = ("_delay",)

    def __init__(self, delay: int) -> None:
        super().__init__()
        self._delay = delay

    def observe(self, latest: int | None, marked: int | None, now: int) -> int | None:
        at_mark = None if marked is None else later(self.seen, marked)
        super().observe(latest, None, now)
        return self._risen(None if at_mark is None else at_mark - self._delay)


class Lag(Generator):
    """Now - `delay`, whatever the rows say; it needs none."""

    __slots__ = ("_delay",)

    def __init__(self, delay: int) -> None:
        super().__init__()
        self._delay = delay

    def _candidate(self, now: int) -> int | None:
        return now - self._delay


class Automatic(Generator):
    """The watermark of ingestion times: the last multiple of `every` before now, so that sources
    with clocks of their own move together; also before a timer, when a record passes a multiple.

    A record of this very millisecond may follow, so a multiple counts once it has passed.
    """

    __slots__ = ("_every",)

    def __init__(self, every: int) -> None:
        super().__init__()
        self._every = every

    def observe(self, latest: int | None, marked: int | None, now: int) -> int | None:
        self.seen = later(self.seen, now)
        return self.emit(now)

    def _candidate(self, now: int) -> int | None:
        return (now - 1) // self._every * self._every


class Own(Generator):
    """A generator of the operator's, held to what all are held to: it never goes backwards."""

    __slots__ = ("_own",)

    def __init__(self, own: Generator) -> None:
        super().__init__()
        self._own = own

    def observe(self, latest: int | None, marked: int | None, now: int) -> int | None:
        super().observe(latest, None, now)
        return self._risen(self._own.observe(latest, marked, now))

    def _candidate(self, now: int) -> int | None:
        return self._own.emit(now)

    def snapshot(self) -> dict[str, Any]:
        return super().snapshot() | {"own": self._own.snapshot()}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self._own.restore(state.get("own", {}))


def generator(watermark: Watermark) -> Generator:
    """The generator that a spec names, for one partition."""
    match watermark.generator:
        case "bounded":
            return Bounded(watermark.delay_ms, exact=watermark.exact)
        case "monotonous":
            return Bounded(0)
        case "punctuated":
            return Punctuated(watermark.delay_ms)
        case "lag":
            return Lag(watermark.delay_ms)
        case "automatic":
            return Automatic(watermark.emit_every_ms)
        case GeneratorClass(path=path):
            raise ValueError(f"{path} is the operator's to make; hand it in")


def later(one: int | None, other: int | None) -> int | None:
    """The greater of two times, of which either may be unknown."""
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)
