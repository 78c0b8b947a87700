"""Evolution: whether the stored state of a job can answer a changed query, and how.

    old plan, new plan ──► compare_plans ──► each new argument in the state, or why not
    a group's cells and multisets ──► GroupConverter ──► a delta that starts it under the new plan

Rows, groups and windows must be the same: the state cannot separate rows that were added up, and
does not have rows that were filtered. An aggregate needs its cells in the state, or a multiset of
its argument. A multiset has all values, so it can answer any aggregate: MIN if there was MAX, a
median, COUNT DISTINCT.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jobs.core.fold.program import FIRST_CELL, FIRST_PLUS, HEADS, ROW_COUNT, Delta, Program
from jobs.core.fold.state import Group, Key
from jobs.core.job.window_rules import closes, closing_of
from jobs.core.join.stages import join_alike
from jobs.core.plan.tree import Aggregate, Expression, Plan
from jobs.core.plan.walk import can_fail
from jobs.core.sql.printer import aggregate_label
from jobs.core.time.due_work import refuse_other_windows
from jobs.core.values.change import Row, Value
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow

Entries = Mapping[int, Sequence[tuple[Value, int]]]  # by argument: values, multiplicities


@dataclass(frozen=True, slots=True)
class Evolution:
    """The consequences of a changed query for a job's state, results and changelog."""

    sources: tuple[int | None, ...]  # for each new argument the index of the equal old one
    reasons: tuple[str, ...]  # why the state is not enough, so that the topic is read again
    added: tuple[str, ...]  # columns of the result
    dropped: tuple[str, ...]
    fixed: tuple[str, ...] = ()  # why reading the topic again is not enough: it is another job
    begins: bool = False  # group columns changed, so a new changelog begins


@dataclass(frozen=True, slots=True)
class Planned:
    """A spec and the plan of its query."""

    spec: JobSpec
    plan: Plan


def compare_jobs(old: Planned, new: Planned, newest: EpochRow) -> Evolution:
    """Compare a job's spec with a changed one; `newest` is the job's newest epoch."""
    found = compare_plans(old.plan, new.plan, closes=closes(old.spec) or closes(new.spec))
    more = []
    if newest.withholds:
        more.append("results are withheld until the watermark ends their bundle")
    closing = closing_of(new.spec, new.plan)
    if not newest.fresh and (why := refuse_other_windows(newest.time.due_work, closing)):
        more.append(why)
    fixed = []
    if new.spec.state.buckets != old.spec.state.buckets:
        fixed.append(
            f"state.buckets is fixed for the life of a job: it is {old.spec.state.buckets}"
        )
    sink, before = new.spec.sink, old.spec.sink
    if found.begins and sink is not None and before is not None and sink.topic == before.topic:
        fixed.append(
            f"the group columns changed, and the changelog in {sink.topic} cannot continue with "
            "other keys; give sink.topic another name"
        )
    return replace(found, reasons=(*found.reasons, *more), fixed=(*fixed, *found.fixed))


def describe_other_topics(old: JobSpec, new: JobSpec) -> str:
    """Return why the state is not that of the topics of a spec; "" if it is."""
    if new.topics_by_source == old.topics_by_source:
        return ""
    key = "source.topic" if old.sources is None and new.sources is None else "sources"
    return f"{key} changed, and the state has the rows of the old topics"


def drops_topics(old: JobSpec, new: JobSpec) -> bool:
    """Return whether the state has rows of a topic that the new spec does not read as before.

    A topic that is new in a source needs no replay: the job reads it from its start."""
    if old.sources is None or new.sources is None:
        return not set(old.topics) <= set(new.topics)
    after = new.topics_by_source
    return any(
        not set(topics) <= set(after.get(name, ())) for name, topics in old.topics_by_source.items()
    )


def refuses_less(old: Planned, new: Planned) -> bool:
    """Return whether the new job may take a message that the old one has refused."""
    known = set(_row_expressions(new.plan))
    lost = (each for each in _row_expressions(old.plan) if each not in known)
    sources = new.spec.source_specs
    kept = (
        alone.columns.items() <= sources[name].columns.items()
        for name, alone in old.spec.source_specs.items()
        if name in sources
    )
    return any(map(can_fail, lost)) or not all(kept)


def _row_expressions(plan: Plan) -> Iterator[Expression]:
    if plan.where is not None:
        yield plan.where
    yield from (named.expression for named in (*plan.group, *plan.arguments))


def compare_plans(old: Plan, new: Plan, *, closes: bool) -> Evolution:
    """Compare two plans; `closes`: windows close, so some groups have no state any more."""
    before, after = Program(old), Program(new)
    indexes = {named.expression: index for index, named in enumerate(old.arguments)}
    sources = tuple(indexes.get(named.expression) for named in new.arguments)
    reasons = _row_reasons(old, new)
    if closes and new != old:
        reasons.append("groups of closed windows have a result but no state")
    if not reasons:
        missing = (_missing_state(before, after, sources, each) for each in new.aggregates)
        reasons += [reason for reason in missing if reason]
    names = dict(old.results)
    return Evolution(
        sources,
        tuple(reasons),
        tuple(name for name, _ in new.results if name not in names),
        tuple(name for name in names if name not in dict(new.results)),
        tuple(_type_reasons(old, new)),
        old.key != new.key,
    )


def _row_reasons(old: Plan, new: Plan) -> list[str]:
    """Return why the new plan makes other rows or groups from the same messages."""
    reasons = []
    trees = [plan.relation for plan in (old, new) if plan.relation is not None]
    alike = join_alike(*trees) if len(trees) == 2 else not trees
    if not alike or old.source != new.source:
        reasons.append("FROM joins other rows, and the state has those that it joined")
    if old.where != new.where:
        reasons.append("WHERE changed, and rows that it removed are not kept")
    if old.group != new.group:
        reasons.append("GROUP BY changed, and the state has groups, not rows")
    if old.empty_keys != new.empty_keys:
        reasons.append("`empty` changed, and so does the row of an empty input")
    if old.primary_key != new.primary_key:
        reasons.append("the primary key changed")
    elif old.primary_key and old.image != new.image:
        reasons.append("the last images of rows have the columns of the old query")
    if old.instants_argument is not None and old.kept_results != new.kept_results:
        reasons.append("the state of a session is more than one group")
    return reasons


def _missing_state(
    before: Program, after: Program, sources: Sequence[int | None], aggregate: Aggregate
) -> str | None:
    """Return why the state cannot answer an aggregate, or None if it can."""
    argument = aggregate.argument
    if argument is None:
        return None
    source, label = sources[argument], aggregate_label(after.plan, aggregate)
    if source is None:
        return f"{label} is over values that no aggregate of the old query is over"
    if source in before.multisets:
        return None
    if argument in after.multisets:
        return (
            f"{label} needs all values of {after.plan.arguments[argument].name}, which are not kept"
        )
    if not set(after.arguments[argument]) <= set(before.arguments[source]):
        return f"{label} needs more than is kept of {after.plan.arguments[argument].name}"
    return None


def _type_reasons(old: Plan, new: Plan) -> list[str]:
    """Return the columns whose type changed; a column of the table cannot change its type."""
    types = dict([*old.key, *old.kept_results])
    return [
        f"column {name} was {types[name]} and would be {kind}: give it another name with AS"
        for name, kind in [*new.key, *new.kept_results]
        if name in types and types[name] != kind
    ]


class GroupConverter:
    """Converts groups of the old plan to deltas that start them under the new plan."""

    def __init__(self, old: Program, new: Program, sources: Sequence[int | None]) -> None:
        self._new = new
        self._rebuilt: list[tuple[int, int]] = []  # new and old argument, from the multiset
        self._copied: list[tuple[int, int]] = []  # cell of the new delta, cell of the old group
        for argument, source in enumerate(sources):
            assert source is not None
            if source in old.multisets:
                self._rebuilt.append((argument, source))
                continue
            old_cells = old.cell_ranges(source)
            for accumulator, cells in new.cell_ranges(argument).items():
                self._copied += zip(cells, old_cells[accumulator], strict=True)

    def delta(self, key: Key, group: Group, entries: Entries) -> Delta:
        """Return the delta of a whole group.

        The values of its multisets are gathered like rows; the row count and cells are copied.
        """
        arguments = len(self._new.arguments)
        columns: list[list[Any]] = [[] for _ in range(arguments)]
        weights: list[int] = []
        for argument, source in self._rebuilt:
            for value, multiplicity in entries.get(source, ()):
                for index, column in enumerate(columns):
                    column.append(value if index == argument else None)
                weights.append(multiplicity)
        count = len(weights)
        gathered = self._new.gather([key] * count, *columns, range(count), weights)
        delta = gathered.get(key) or self._new.empty_delta()
        delta[ROW_COUNT], delta[FIRST_PLUS], delta[HEADS] = group.cells[0], 0, None
        for new_cell, old_cell in self._copied:
            delta[FIRST_CELL + new_cell - 1] = group.cells[old_cell]
        return delta


class RowConverter:
    """Converts result rows of the old query to rows of the new one; a new column is NULL."""

    def __init__(self, old: Plan, new: Plan) -> None:
        indexes = {name: index for index, (name, _) in enumerate(old.results)}
        self._indexes = [indexes.get(name) for name, _ in new.results]

    def row(self, row: Row) -> Row:
        return tuple([None if index is None else row[index] for index in self._indexes])
