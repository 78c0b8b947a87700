"""Make the source rules of a job: the part of its spec by which tasks read messages."""

from __future__ import annotations

from jobs.core.formats.registry import MessageRules
from jobs.core.job.time_rules import TimeRules
from jobs.core.plan.tree import Plan
from jobs.edge.tasks.range_reading import SourceRules
from schemas.spec.job import JobSpec


def make_source_rules(spec: JobSpec, plan: Plan) -> SourceRules:
    """Return the rules by which tasks read the messages of a job."""
    times = {topic: TimeRules.of(spec, topic, plan.columns) for topic in spec.source.topics}
    return SourceRules(MessageRules.of(spec), times)
