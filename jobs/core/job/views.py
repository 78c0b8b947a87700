"""The views of a job: the plan of each, what they read, and the plan for decoding for all.

spec ──► the spec of each view ──► plans_of ──► one plan for each view
                                      └──► reading_plan: the columns that any view reads
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.core.job.job_plan import plan_of, source_columns
from jobs.core.join.stages import (
    JoinTree,
    Reader,
    Side,
    list_readers,
    list_sides,
    reading_plan_of,
    subtable_of,
    trees_of,
)
from jobs.core.plan.tree import Column, Plan
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from schemas.types.sql_types import SqlType


def plans_of(spec: JobSpec) -> dict[str, Plan]:
    """Return the plan of each view by name; the job's own query has the name ""."""
    return {name: plan_of(each) for name, each in spec.view_specs.items()}


def reading_plan(plans: Mapping[str, Plan]) -> Plan:
    """Return the plan whose used columns are those of all views, in the declared order."""
    first, *others = plans.values()
    if not others:
        return first
    used = [column for plan in plans.values() for column in plan.used]
    columns = dict.fromkeys((*first.columns, *used))  # the metadata that they use comes last
    return replace(first, used=tuple(each for each in columns if each in used))


def fingerprints_of(spec: JobSpec) -> dict[str, str]:
    """Return the fingerprint of the plan of each view."""
    return {name: plan.fingerprint for name, plan in plans_of(spec).items()}


def has_state_of(row: EpochRow, spec: JobSpec, known: JobSpec) -> bool:
    """Return whether an epoch has the state of the queries of a spec, over its topics.

    `known` is the spec beside the table, which is older than the epoch if an evolve was killed."""
    sources = row.counts.sources or known.topics_by_source
    return row.plans == fingerprints_of(spec) and sources == spec.topics_by_source


def find_type_conflicts(plans: Mapping[str, Plan]) -> dict[str, str]:
    """Return the views with a column that an earlier view has in another type, with the reasons.

    All views are in one table, so that a column has one type in it.
    """
    known: dict[str, tuple[str, SqlType]] = {}
    problems: dict[str, str] = {}
    for name, plan in plans.items():
        for column, kind in [*plan.key, *plan.kept_results]:
            view, before = known.setdefault(column.lower(), (name, kind))
            if before != kind:
                other = f"view {view!r}" if view else "the query"
                problems[name] = (
                    f"column `{column}` is {kind} here and {before} in {other}, and one table has "
                    "both; use AS to give it another name"
                )
    return problems


def sources_of(spec: JobSpec, plan: Plan) -> Mapping[str, Plan]:
    """Return the plan for decoding each source, with the columns that one query reads of it."""
    read: Mapping[str, Plan] = {plan.source: plan}
    if plan.relation is not None:
        read = JobInputs.of(spec, {"": plan}).sources
    specs = spec.source_specs.items()
    return {name: read.get(name) or _reading_plan(name, source, ()) for name, source in specs}


@dataclass(frozen=True, slots=True)
class JobInputs:
    """What the views of a job read: its sources and its joins."""

    sources: Mapping[str, Plan]  # the plan for decoding each
    readers: Mapping[str, Sequence[Reader]]  # of the rows of each source
    trees: tuple[JoinTree, ...]

    @classmethod
    def of(cls, spec: JobSpec, plans: Mapping[str, Plan]) -> JobInputs:
        trees, sources, readers = trees_of(plans), dict[str, Plan](), dict[str, list[Reader]]()
        for name, source in spec.source_specs.items():
            found = list_readers(name, _image_key(source), plans, trees)
            if found:  # else no view needs the source
                readers[name] = found
                sources[name] = _reading_plan(name, source, found)
        return cls(sources, readers, trees)

    @property
    def sides(self) -> list[Side]:
        return list_sides(self.trees)

    @property
    def states(self) -> dict[str, Plan]:
        """The plans of what the table keeps beside the views, by the name of its part."""
        images = {subtable_of(n): plan for n, plan in self.sources.items() if plan.primary_key}
        return images | {side.name: side.state for side in self.sides}


def _image_key(source: JobSpec) -> tuple[Column, ...]:
    """Return the columns by which a job keeps the last images of a source; () without dedupe."""
    columns = source_columns(source)
    return tuple(columns[each] for each in source.primary_key or () if source.dedupe)


def _reading_plan(name: str, source: JobSpec, readers: Sequence[Reader]) -> Plan:
    columns = source_columns(source)
    declared = [columns[each] for each in source.columns]
    metadata = [each for each in columns.values() if each not in declared]
    return reading_plan_of(name, declared, metadata, _image_key(source), readers)
