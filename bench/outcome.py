"""What a run of an engine over a topic came to, in the same terms for every engine."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bench.generator import Truth

DIFFERENCES_SHOWN_MAX = 5


class BenchFailed(RuntimeError):
    """An engine did not do its work, so there is nothing to compare; the message says what."""


@dataclass(frozen=True, slots=True)
class Progress:
    """By this moment the engine had dealt with this many changes of the topic."""

    at_ms: float  # since 1970; engines, broker and bench share one clock
    changes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """One engine, one topic, from the start of its process to its last result readable.

    `progress` starts where the engine first says something and ends with all changes and
    everything they caused published.
    """

    engine: str
    started_ms: float
    progress: list[Progress]
    memory_bytes_max: int
    cpu_seconds: float  # of all its processes, the broker's not included
    spent: list[tuple[float, float]] = field(default_factory=list)  # that as it grew, by moment

    @property
    def changes(self) -> int:
        return self.progress[-1].changes

    @property
    def seconds(self) -> float:
        return (self.progress[-1].at_ms - self.started_ms) / 1_000

    def rate_after(self, changes: int) -> float:
        """Changes a second from the moment this many were done: without start and warm-up."""
        begin = next(point for point in self.progress if point.changes >= changes)
        end = self.progress[-1]
        if end.changes <= begin.changes:
            raise BenchFailed(
                f"{self.engine} did all {end.changes:,} changes in its first step; "
                "use more of them (--changes)"
            )
        return (end.changes - begin.changes) / (end.at_ms - begin.at_ms) * 1_000

    def cpu_seconds_after(self, changes: int) -> float:
        """Processor time of a change from the moment this many were done."""
        begin = next(point for point in self.progress if point.changes >= changes)
        end = self.progress[-1]
        moments, seconds = zip(*self.spent, strict=True)
        before, after = np.interp([begin.at_ms, end.at_ms], moments, seconds)
        return float(after - before) / (end.changes - begin.changes)


def differences(result: Truth, truth: Truth) -> list[str]:
    """The first few groups in which a result is not the truth, as lines for people."""
    lines = []
    for name in sorted(result.keys() | truth.keys()):
        if result.get(name) != truth.get(name):
            lines.append(f"{name}: {result.get(name)} instead of {truth.get(name)}")
            if len(lines) == DIFFERENCES_SHOWN_MAX:
                break
    return lines


def check(engine: str, result: Truth, truth: Truth) -> None:
    """A fast wrong answer is no figure."""
    wrong = differences(result, truth)
    if wrong:
        raise BenchFailed(f"{engine} has a wrong result: " + "; ".join(wrong))
