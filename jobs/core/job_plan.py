"""The plan of a job: that of its query, and what the rest of the spec adds to it."""

from __future__ import annotations

from dataclasses import replace

from jobs.core.plan import Plan
from jobs.core.query import parse_query
from schemas.job import JobSpec


def plan_of(spec: JobSpec) -> Plan:
    """What a job computes; a QueryError says what is wrong with its query."""
    plan = parse_query(spec.query, spec.columns)
    if spec.dedupe is None or not spec.primary_key:
        return plan
    columns = {column.name: column for column in plan.columns}
    return replace(plan, primary_key=tuple(columns[name] for name in spec.primary_key))
