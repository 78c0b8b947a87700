"""How a job folds its rows: many groups at once in arrays, or group by group."""

from __future__ import annotations

from jobs.core.fold.columnar.query import why_not_columnar
from jobs.core.fold.rules import rules_of
from jobs.core.job.window_rules import closes
from jobs.core.plan.tree import Plan
from schemas.spec.job import JobSpec


def describe_folding(spec: JobSpec, plan: Plan) -> str:
    """Return which way the rows of a job take, and why if it is the slow one."""
    rules = rules_of(spec.state, withhold=spec.minibatch.clock == "event" or closes(spec))
    why = why_not_columnar(plan, rules)
    return "in arrays, many groups at once" if why is None else f"group by group, because {why}"
