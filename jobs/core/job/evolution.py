"""Evolution: what a changed query can be answered with from the state that a job has kept.

    old plan, new plan ──► evolution ──► where each argument of the new one is kept, or why not
    a group's cells and multisets ──► carried ──► a delta that begins the group under the new plan

Rows, groups and windows have to be the same: those who were filtered away or added up cannot be
told apart any more. An aggregate is answered by the cells that it needs, or by the multiset of its
argument, which says everything about it: MIN where there is MAX, a median, a count of the distinct.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jobs.core.fold.program import FIRST_CELL, FIRST_PLUS, HEADS, ROW_COUNT, Delta, Program
from jobs.core.fold.state import Group, Key
from jobs.core.job.window_rules import closes, closing_of
from jobs.core.plan.tree import Aggregate, Plan
from jobs.core.sql.printer import aggregate_shown
from jobs.core.time.due_work import other_windows
from jobs.core.values.change import Row, Value
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from schemas.types.sql_types import SqlType

Entries = Mapping[int, Sequence[tuple[Value, int]]]  # by argument: values, multiplicities


@dataclass(frozen=True, slots=True)
class Evolution:
    """What becomes of a job whose query is another now."""

    sources: tuple[int | None, ...]  # of each new argument the old one that it is
    reasons: tuple[str, ...]  # why the kept state does not do; then the topic is read again
    added: tuple[str, ...]  # columns of the result
    dropped: tuple[str, ...]
    fixed: tuple[str, ...] = ()  # why not even reading the topic again does: it is another job
    begins: bool = False  # groups are named in another way: no changelog leads from old to new

    @property
    def continues(self) -> bool:
        return not self.reasons and not self.fixed

    @property
    def replays(self) -> bool:
        """Whether the topic, read again under the new query, can take the state's place."""
        return not self.fixed


@dataclass(frozen=True, slots=True)
class Planned:
    """A spec and the plan of its query."""

    spec: JobSpec
    plan: Plan


def compared(old: Planned, new: Planned, newest: EpochRow) -> Evolution:
    """What a spec would make of a job that stands at an epoch."""
    found = evolution(old.plan, new.plan, closes=closes(old.spec) or closes(new.spec))
    agenda = newest.watermarks.get("agenda")
    more = []
    if (agenda or {}).get("withheld"):
        more.append("results are withheld until the watermark ends their bundle")
    if not newest.fresh and (why := other_windows(agenda, closing_of(new.spec, new.plan))):
        more.append(why)
    fixed = []
    if new.spec.state.buckets != old.spec.state.buckets:
        fixed.append(
            f"state.buckets is fixed for the life of a job: it is {old.spec.state.buckets}"
        )
    if new.spec.source.topics != old.spec.source.topics:
        fixed.append("source.topic is another; a job stays with its source")
    sink, before = new.spec.sink, old.spec.sink
    if found.begins and sink is not None and before is not None and sink.topic == before.topic:
        fixed.append(
            f"groups have other columns, and the changelog in {sink.topic} cannot lead from the "
            "old groups to the new ones; give sink.topic another name"
        )
    return replace(found, reasons=(*found.reasons, *more), fixed=(*fixed, *found.fixed))


def evolution(old: Plan, new: Plan, *, closes: bool) -> Evolution:
    """Compare two plans; `closes` says that windows of the job close, so that some of its groups
    have no state any more."""
    before, after = Program(old), Program(new)
    known = {named.expression: index for index, named in enumerate(old.arguments)}
    sources = tuple(known.get(named.expression) for named in new.arguments)
    reasons = _other_rows(old, new)
    if closes and new.kept != old.kept:
        reasons.append("groups of windows that have closed keep their result and nothing else")
    if not reasons:
        missing = (_missing(before, after, sources, each) for each in new.aggregates)
        reasons += [reason for reason in missing if reason]
    names = dict(old.results)
    return Evolution(
        sources,
        tuple(reasons),
        tuple(name for name, _ in new.results if name not in names),
        tuple(name for name in names if name not in dict(new.results)),
        tuple(_other_types(old, new)),
        _keys(old) != _keys(new),
    )


def _other_rows(old: Plan, new: Plan) -> list[str]:
    """What makes other rows or groups of the same messages."""
    reasons = []
    if old.where != new.where:
        reasons.append("WHERE is another, and rows that it removed are not kept")
    if old.group != new.group:
        reasons.append("GROUP BY is another, and rows are kept as parts of their groups only")
    if old.primary_key != new.primary_key:
        reasons.append("the primary key is another")
    elif old.primary_key and old.image != new.image:
        reasons.append("the last images of rows are kept with the columns of the old query")
    if old.instants is not None and old.kept != new.kept:
        reasons.append("sessions are made of more than one group's state")
    return reasons


def _missing(
    before: Program, after: Program, sources: Sequence[int | None], aggregate: Aggregate
) -> str | None:
    """Why the state does not answer an aggregate."""
    argument = aggregate.argument
    if argument is None:
        return None
    source, shown = sources[argument], aggregate_shown(after.plan, aggregate)
    if source is None:
        return f"{shown} is over values that no aggregate of the old query is over"
    if source in before.multisets:
        return None
    if argument in after.multisets:
        return (
            f"{shown} needs all values of {after.plan.arguments[argument].name}, which are not kept"
        )
    if not set(after.arguments[argument]) <= set(before.arguments[source]):
        return f"{shown} needs more than is kept of {after.plan.arguments[argument].name}"
    return None


def _keys(plan: Plan) -> list[tuple[str, SqlType]]:
    return [(named.name, named.type) for named in plan.group]


def _other_types(old: Plan, new: Plan) -> list[str]:
    """A column of the table has one type for good."""
    kept = dict([*_keys(old), *old.kept])
    return [
        f"column {name} was {kept[name]} and would be {kind}: give it another name with AS"
        for name, kind in [*_keys(new), *new.kept]
        if name in kept and kept[name] != kind
    ]


class Carried:
    """Groups of the old plan as deltas that begin them under the new one."""

    def __init__(self, old: Program, new: Program, sources: Sequence[int | None]) -> None:
        self._new = new
        self._rebuilt: list[tuple[int, int]] = []  # new and old argument, from the multiset
        self._copied: list[tuple[int, int]] = []  # cell of the new delta, cell of the old group
        for argument, source in enumerate(sources):
            assert source is not None
            if source in old.multisets:
                self._rebuilt.append((argument, source))
                continue
            places = old.places(source)
            for accumulator, cells in new.places(argument).items():
                self._copied += zip(cells, places[accumulator], strict=True)

    def delta(self, key: Key, group: Group, entries: Entries) -> Delta:
        """All of a group, as rows that come to nothing."""
        arguments = len(self._new.arguments)
        columns: list[list[Any]] = [[] for _ in range(arguments)]
        weights: list[int] = []
        for argument, source in self._rebuilt:
            for value, multiplicity in entries.get(source, ()):
                for place, column in enumerate(columns):
                    column.append(value if place == argument else None)
                weights.append(multiplicity)
        count = len(weights)
        gathered = self._new.gather([key] * count, *columns, range(count), weights)
        delta = gathered.get(key) or self._new.beginning()
        delta[ROW_COUNT], delta[FIRST_PLUS], delta[HEADS] = group.cells[0], 0, None
        for cell, of_group in self._copied:
            delta[FIRST_CELL + cell - 1] = group.cells[of_group]
        return delta


class Reshaped:
    """Rows of the old query's results in the shape of the new one: a new column was NULL."""

    def __init__(self, old: Plan, new: Plan) -> None:
        places = {name: place for place, (name, _) in enumerate(old.results)}
        self._places = [places.get(name) for name, _ in new.results]

    def row(self, row: Row) -> Row:
        return tuple([None if place is None else row[place] for place in self._places])
