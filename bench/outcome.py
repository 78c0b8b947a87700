"""The outcome of one engine over one topic, in the same terms for every engine."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bench.generator import Truth

DIFFERENCES_SHOWN_MAX = 5


class BenchFailed(RuntimeError):
    """An engine failed or has wrong results, so there is no figure."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The number of changes that the engine had processed at a moment."""

    at_ms: float  # since 1970; engines, broker and bench share one clock
    changes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The run of an engine over a topic, from the start of its process to its last result.

    `progress` starts with the engine's first report, and ends when all results are published.
    """

    engine: str
    started_ms: float
    progress: list[Progress]
    memory_bytes_max: int
    cpu_seconds: float  # of all its processes, without the broker
    spent: list[tuple[float, float]] = field(default_factory=list)  # moment, CPU seconds so far

    @property
    def changes(self) -> int:
        return self.progress[-1].changes

    @property
    def seconds(self) -> float:
        return (self.progress[-1].at_ms - self.started_ms) / 1_000

    def rate_after(self, changes: int) -> float:
        """Return changes per second after so many changes, that is without start and warm-up."""
        begin = next(point for point in self.progress if point.changes >= changes)
        end = self.progress[-1]
        if end.changes <= begin.changes:
            raise BenchFailed(
                f"{self.engine} processed all {end.changes:,} changes in its first step; "
                "use more changes (--changes)"
            )
        return (end.changes - begin.changes) / (end.at_ms - begin.at_ms) * 1_000

    def cpu_seconds_after(self, changes: int) -> float:
        """Return processor time per change after so many changes."""
        begin = next(point for point in self.progress if point.changes >= changes)
        end = self.progress[-1]
        moments, seconds = zip(*self.spent, strict=True)
        before, after = np.interp([begin.at_ms, end.at_ms], moments, seconds)
        return float(after - before) / (end.changes - begin.changes)


def differences(result: Truth, truth: Truth) -> list[str]:
    """Return the first few groups with a wrong result, as lines for people."""
    lines = []
    for name in sorted(result.keys() | truth.keys()):
        if result.get(name) != truth.get(name):
            lines.append(f"{name}: {result.get(name)} instead of {truth.get(name)}")
            if len(lines) == DIFFERENCES_SHOWN_MAX:
                break
    return lines


def check(engine: str, result: Truth, truth: Truth) -> None:
    """Raise BenchFailed unless the result is correct: a wrong result has no figure."""
    wrong = differences(result, truth)
    if wrong:
        raise BenchFailed(f"{engine} has a wrong result: " + "; ".join(wrong))
