"""What the views of a job read: its sources, and the joins between these and the views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.core.job.job_plan import source_columns
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
