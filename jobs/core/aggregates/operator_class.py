"""Aggregates that operators write in Python: their base class, and what calls them.

    multiset of (arguments) ──in order──► accumulate(state, *arguments) ──► result(state)
                                             │  registers timers   ▲
                                             └──► on_timer(state, time) for timers up to a time,
                                                  and before each later row

A value follows from the rows of the group and from that time alone, which is the watermark or the
processing time in the epoch row. It is computed from the group's multiset whenever one of both
changes, so that a retraction needs no method of the class, and the order of arrival, bundles and
restarts do not matter.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from typing import Any

from jobs.core.aggregates.entries import Entries, distinct_values
from jobs.core.aggregates.extremes import multiset_of
from jobs.core.aggregates.interfaces import Function, ReadCost, Site
from jobs.core.plan.tree import MICROS_OF_MS, Aggregate
from jobs.core.values.change import Value
from jobs.core.values.json_values import converter, renderer
from schemas.failures.catalogue import CodedError
from schemas.limits import CLASS_TIMERS_MAX, REASON_CHARACTERS_MAX
from schemas.types.sql_types import STRING, Kind, SqlType

_INT64 = -(1 << 63), (1 << 63) - 1
_ROW_CHARACTERS_MAX = REASON_CHARACTERS_MAX // 2


class AggregateFailed(CodedError, code="aggregate-failed"):
    """An operator's aggregate class raised an exception; with the same rows it will again."""


class Timers:
    """The timers of the group that is computed, in milliseconds."""

    def __init__(self) -> None:
        self._times: list[int] = []  # a heap, in which deleted ones stay
        self._registered: set[int] = set()
        self._fired = 0

    def register(self, time: int) -> None:
        """Register a timer; two of the same time are one."""
        if type(time) is not int:
            raise TypeError(f"the time of a timer is milliseconds in an int, not {time!r:.40}")
        if not _INT64[0] <= time <= _INT64[1]:
            raise ValueError(f"the time {time} of a timer has more than 64 bits")
        if time not in self._registered:
            self._registered.add(time)
            heappush(self._times, time)

    def delete(self, time: int) -> None:
        """Delete a timer, if there is one of this time."""
        self._registered.discard(time)

    @property
    def first(self) -> int | None:
        """The time of the first timer."""
        while self._times and self._times[0] not in self._registered:
            heappop(self._times)
        return self._times[0] if self._times else None

    def fire(self) -> None:
        """Remove the first timer."""
        self._fired += 1
        if self._fired > CLASS_TIMERS_MAX:
            raise OverflowError(f"more than {CLASS_TIMERS_MAX} timers fire in one group")
        self._registered.remove(heappop(self._times))


class AggregateFunction:
    """Base class of operators' aggregates. One object serves all groups, so it has no state."""

    timers: Timers  # of the group that is computed

    def create(self) -> Any:
        """Return the state of a group without rows."""
        return None

    def accumulate(self, state: Any, *arguments: Any) -> Any:
        """Return the state after a row, whose arguments are typed JSON."""
        raise NotImplementedError("a class needs accumulate(state, *arguments)")

    def on_timer(self, state: Any, time: int) -> Any:
        """Return the state after a timer fired."""
        return state

    def result(self, state: Any) -> Any:
        """Return the value of a state as typed JSON; None is NULL."""
        return state


@dataclass(slots=True)
class GroupClock:
    """The time up to which the timers of a fold fire, and the first timer of a group behind it."""

    until: int | None = None
    next: int | None = None

    def see(self, timer: int) -> None:
        """Take a timer of an aggregate of the group that is not due yet."""
        if self.next is None or timer < self.next:
            self.next = timer


def _refuse(path: str) -> AggregateFunction:
    raise ImportError(f"{path} runs in jobs, `retally replay` and audits only")


class ClassLoading:
    """How a class gets its object; who may run code of operators replaces `load`."""

    load: Callable[[str], AggregateFunction] = staticmethod(_refuse)


def class_value(
    path: str, returns: str, items: Sequence[str], entries: Entries, clock: GroupClock | None
) -> Value:
    """Return the value of a class over the arguments of a group's rows.

    With a clock the first argument is the time of a row, and the timers of the class fire.
    """
    return _prepare(path, returns, tuple(items)).compute(entries, clock)


@lru_cache(64)
def _prepare(path: str, returns: str, items: tuple[str, ...]) -> _Runner:
    try:
        function = ClassLoading.load(path)
    except Exception as error:
        raise AggregateFailed(f"the aggregate class {path} cannot be loaded: {error}") from error
    return _Runner(path, function, SqlType.read(returns), [SqlType.read(each) for each in items])


class _Runner:
    """Calls the methods of one class, and converts what they take and return."""

    def __init__(
        self, path: str, function: AggregateFunction, returns: SqlType, items: list[SqlType]
    ) -> None:
        self._path, self._function, self._returns = path, function, returns
        self._writers = [renderer(item) for item in items]
        self._unit = 1 if items[0].kind is Kind.BIGINT else MICROS_OF_MS
        self._convert = converter(returns)

    def compute(self, entries: Entries, clock: GroupClock | None) -> Value:
        function = self._function
        row: list[Any] | None = None
        function.timers = Timers()
        try:
            state = function.create()
            for values, times in entries:
                row = [write(value) for write, value in zip(self._writers, values, strict=True)]
                if clock is not None and values[0] is not None:
                    row[0] = at = values[0] // self._unit
                    state = self._fire(state, clock, at - 1)
                for _ in range(times):
                    state = function.accumulate(state, *row)
            row = None
            if clock is not None:
                state = self._fire(state, clock, _INT64[1])
            found = function.result(state)
        except Exception as error:
            raise self._make_failure(error, row) from error
        try:
            return self._convert(found)
        except ValueError as error:
            raise AggregateFailed(
                f"the aggregate class {self._path}: result returned {repr(found)[:80]}, which is "
                f"no {self._returns}: {error}; correct the class, then start the job"
            ) from None

    def _fire(self, state: Any, clock: GroupClock, last: int) -> Any:
        """Return the state after the timers up to `last`; a timer that is not due stops them.

        A later row may delete this timer. But it fires before the row, once it is due.
        """
        function = self._function
        while (time := function.timers.first) is not None and time <= last:
            if clock.until is None or time > clock.until:
                clock.see(time)
                break
            function.timers.fire()
            state = function.on_timer(state, time)
        return state

    def _make_failure(self, error: Exception, row: list[Any] | None) -> AggregateFailed:
        last = traceback.extract_tb(error.__traceback__)[-1]
        file = last.filename.replace("\\", "/").rpartition("/")[2]
        shown = "" if row is None else f"; the row: {json.dumps(row)[:_ROW_CHARACTERS_MAX]}"
        return AggregateFailed(
            f"the aggregate class {self._path}: {last.name} failed: {type(error).__name__}: "
            f"{error} ({file}, line {last.lineno}){shown}; correct the class, then start the job"
        )


def recompute_class(
    aggregate: Aggregate, argument: SqlType, values: Entries, until: int | None
) -> Value:
    """Return the value of a call over values with their multiplicities, for audits.

    Its timers have fired up to `until`."""
    path, returns, timed = map(str, aggregate.parameters)
    entries = distinct_values(values) if aggregate.distinct else values
    clock = GroupClock(until) if timed else None
    return class_value(path, returns, list(map(str, argument.items)), entries, clock)


def _value(site: Site) -> list[str]:
    path, returns, timed = site.aggregate.parameters
    entries = f"{site.present}.entries()"
    if site.aggregate.distinct:
        entries = f"distinct_values({entries})"
    items = tuple(map(str, site.argument.items))
    clock = "clock" if timed else "None"
    call = f"class_value({path!r}, {returns!r}, {items!r}, {entries}, {clock})"
    return [f"{site.target} = {call}"]


# Of every name that no other function has; a plan has only names of a spec's `functions`.
FUNCTION = Function(
    "class",
    accumulators=multiset_of,
    result=lambda _: STRING,  # a call has the type that the spec declares
    value=_value,
    about="A Python class of the operator.",
    example="GEO_MEAN(x)",
    example_result=None,
    read_cost=ReadCost.ALL,
    keeps_nulls=True,
)
RUNTIME = (class_value,)
