"""The plan of a job: that of its query, and what the rest of the spec adds to it."""

from __future__ import annotations

import re
from dataclasses import replace

from jobs.core.fold.program import state_names
from jobs.core.plan.tree import Plan
from jobs.core.sql.dialect import Refusal
from jobs.core.sql.problems import problem_at
from jobs.core.sql.select import QueryError, parse_query
from schemas.spec.job import JobSpec


def plan_of(spec: JobSpec) -> Plan:
    """What a job computes; a QueryError says what is wrong with its query."""
    plan = parse_query(spec.query, spec.columns)
    if spec.dedupe is not None and spec.primary_key:
        columns = {column.name: column for column in plan.columns}
        plan = replace(plan, primary_key=tuple(columns[name] for name in spec.primary_key))
    _check_names(spec.query, plan)
    return plan


def _check_names(sql: str, plan: Plan) -> None:
    """Refuse a column of the result with the name of one that holds state."""
    own = {name.lower() for name in state_names(plan)}
    for name in (*(named.name for named in plan.group), *(name for name, _ in plan.kept)):
        if name.lower() in own:
            found = re.search(rf"\b{name}\b", sql, re.IGNORECASE)
            message = f"`{name}` is a column of the job's own table"
            refusal = Refusal(message, found and found.start(), f"AS {name}_, or another name")
            raise QueryError([problem_at(sql, refusal)])
