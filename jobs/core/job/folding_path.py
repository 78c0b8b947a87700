"""Describe which folding path a job takes: in arrays, or group by group."""

from __future__ import annotations

from jobs.core.fold.columnar.query import why_not_columnar
from jobs.core.fold.rules import rules_of
from jobs.core.job.window_rules import closes
from jobs.core.plan.tree import Plan
from schemas.spec.job import JobSpec


def describe_folding_path(spec: JobSpec, plan: Plan) -> str:
    """Return the folding path of a job, and why if it is the slow one."""
    rules = rules_of(spec, withhold=spec.minibatch.clock == "event" or closes(spec))
    why = why_not_columnar(plan, rules)
    return "in arrays, many groups at once" if why is None else f"group by group, because {why}"
