"""The plan of a job: the plan of its query, completed from the rest of the spec."""

from __future__ import annotations

import re
from dataclasses import replace

from jobs.core.fold.program import state_names
from jobs.core.job.metadata_rules import metadata_columns, metadata_problem
from jobs.core.plan.tree import Column, Plan
from jobs.core.sql.dialect import Refusal
from jobs.core.sql.problems import QueryProblem, problem_at
from jobs.core.sql.select import QueryError, parse_query
from schemas.spec.job import JobSpec


def plan_of(spec: JobSpec) -> Plan:
    """Return the plan of a job's own query; raise QueryError with the problems of the query."""
    if not spec.query:
        names = ", ".join(spec.views or ())
        message = f"job {spec.name!r} has no query of its own; name one of its views: {names}"
        raise QueryError([QueryProblem(message, 1, 1)])
    metadata = metadata_columns(spec)
    plan = parse_query(spec.query, spec.columns, metadata)
    if (problem := metadata_problem(spec, plan)) is not None:
        raise _refusal_at(spec.query, *problem)
    if spec.dedupe is not None and spec.primary_key:
        columns = {name: Column(name, kind) for name, kind in (metadata | spec.columns).items()}
        plan = replace(plan, primary_key=tuple(columns[name] for name in spec.primary_key))
    _check_names(spec.query, plan)
    return plan


def _check_names(sql: str, plan: Plan) -> None:
    """Refuse a result column that has the name of a state column."""
    reserved = {name.lower() for name in state_names(plan)}
    for name in (*(named.name for named in plan.group), *(name for name, _ in plan.kept_results)):
        if name.lower() in reserved:
            message = f"`{name}` is a column of the job's own table"
            raise _refusal_at(sql, name, message, f"AS {name}_, or another name")


def _refusal_at(sql: str, name: str, message: str, hint: str | None = None) -> QueryError:
    """Return the error for a name of a query."""
    found = re.search(rf"\b{name}\b", sql, re.IGNORECASE)
    return QueryError([problem_at(sql, Refusal(message, found and found.start(), hint))])
