"""Aggregate classes as operators write them, and the environment that allows them."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from jobs.core.functions import AggregateFunction

PREFIX = "tests.support.jobs.operator_classes"


class Sum(AggregateFunction):
    """A reduce, as `(a, b) -> a.add(b)`: the state is the value, and nothing needs a retraction."""

    def accumulate(self, state: int | None, value: int | None) -> int | None:
        if value is None:
            return state
        return value if state is None else state + value


class GeoMean(AggregateFunction):
    def create(self) -> list[float]:
        return []

    def accumulate(self, state: list[float], value: int | None) -> list[float]:
        return state if value is None else [*state, math.log(value)]

    def result(self, state: list[float]) -> float | None:
        return math.exp(math.fsum(state) / len(state)) if state else None


class WeightedMean(AggregateFunction):
    """Of decimals, which come as texts; the result is one too."""

    def create(self) -> tuple[Decimal, int]:
        return Decimal(0), 0

    def accumulate(
        self, state: tuple[Decimal, int], value: str | None, weight: int | None
    ) -> tuple[Decimal, int]:
        if value is None or weight is None:
            return state
        return state[0] + Decimal(value) * weight, state[1] + weight

    def result(self, state: tuple[Decimal, int]) -> Decimal | None:
        return state[0] / state[1] if state[1] else None


class Burst(AggregateFunction):
    """The rows of the last burst that a silence of `gap` has ended; as an onTimer counts them."""

    def create(self) -> dict[str, Any]:
        return {"rows": 0, "ends": None, "last": None}

    def accumulate(self, state: dict[str, Any], at: int, gap: int) -> dict[str, Any]:
        if state["ends"] is not None:
            self.timers.delete(state["ends"])
        self.timers.register(at + gap)
        self.timers.register(at + gap)  # the same
        return {**state, "rows": state["rows"] + 1, "ends": at + gap}

    def on_timer(self, state: dict[str, Any], time: int) -> dict[str, Any]:
        return {"rows": 0, "ends": None, "last": state["rows"]}

    def result(self, state: dict[str, Any]) -> int | None:
        return None if state["last"] is None else int(state["last"])


class Fired(AggregateFunction):
    """The timers that have fired, in their order."""

    def create(self) -> list[int]:
        return []

    def accumulate(self, state: list[int], at: int) -> list[int]:
        for later in (30, 10, 20, 10):
            self.timers.register(at + later)
        return state

    def on_timer(self, state: list[int], time: int) -> list[int]:
        return [*state, time]

    def result(self, state: list[int]) -> str | None:
        return ",".join(map(str, state)) or None


class Endless(Fired):
    def on_timer(self, state: list[int], time: int) -> list[int]:
        self.timers.register(time)
        return state


class Wrong(AggregateFunction):
    def accumulate(self, state: Any, value: Any) -> Any:
        return 10 // value

    def result(self, state: Any) -> Any:
        return "ten" if state == 10 else state


NAMES = ("Sum", "GeoMean", "WeightedMean", "Burst", "Fired", "Endless", "Wrong")
ALLOWED = ",".join(f"{PREFIX}:{name}" for name in NAMES)


def declare(name: str, returns: str, **more: Any) -> dict[str, Any]:
    """Return what a spec says of a class."""
    return {"class": f"{PREFIX}:{name}", "returns": returns, **more}
