"""The views of a job: the plan of each, and the plan for decoding messages for all.

spec ──► the spec of each view ──► plans_of ──► one plan for each view
                                      └──► reading_plan: the columns that any view reads
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jobs.core.job.job_plan import plan_of
from jobs.core.plan.tree import Plan
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
