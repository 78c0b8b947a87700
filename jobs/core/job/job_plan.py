"""The plan of a job: the plan of its query, completed from the rest of the spec."""

from __future__ import annotations

import re
from dataclasses import replace

from jobs.core.fold.program import state_names
from jobs.core.plan.tree import Plan
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
    plan = parse_query(spec.query, spec.columns)
    if spec.dedupe is not None and spec.primary_key:
        columns = {column.name: column for column in plan.columns}
        plan = replace(plan, primary_key=tuple(columns[name] for name in spec.primary_key))
    _check_names(spec.query, plan)
    return plan


def _check_names(sql: str, plan: Plan) -> None:
    """Refuse a result column that has the name of a state column."""
    reserved = {name.lower() for name in state_names(plan)}
    for name in (*(named.name for named in plan.group), *(name for name, _ in plan.kept_results)):
        if name.lower() in reserved:
            found = re.search(rf"\b{name}\b", sql, re.IGNORECASE)
            message = f"`{name}` is a column of the job's own table"
            refusal = Refusal(message, found and found.start(), f"AS {name}_, or another name")
            raise QueryError([problem_at(sql, refusal)])
