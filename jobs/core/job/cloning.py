"""Cloning: the spec of a job that starts with the state of another job."""

from __future__ import annotations

from jobs.core.plan.tree import Plan
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec


def clone_spec(spec: JobSpec, name: str) -> JobSpec:
    """Return a job's spec under a new name, without its sink and consumer group.

    Two jobs cannot share a sink topic: its changelog would have every change twice.
    """
    document = spec.document() | {"name": name}
    document.pop("sink", None)
    document["source"].pop("group", None)
    return load_spec(document)


def clone_problems(spec: JobSpec, plan: Plan, of: JobSpec, plan_of: Plan) -> dict[str, str]:
    """Return why a job of `spec` cannot continue with the state of the job `of`, by spec key."""
    problems = {}
    if plan.fingerprint != plan_of.fingerprint:
        problems["query"] = f"must be the query of {of.name!r}, over the same column types"
    if spec.state.buckets != of.state.buckets:
        problems["state.buckets"] = f"must be {of.state.buckets}, as in {of.name!r}"
    if (spec.dedupe, spec.primary_key) != (of.dedupe, of.primary_key):
        problems["dedupe"] = f"must be as in {of.name!r}, with the same primary_key"
    missing = sorted(set(of.source.topics) - set(spec.source.topics))
    if missing:
        problems["source.topics"] = f"must have {missing[0]!r}: its rows stay in the state"
    if spec.sink is not None and of.sink is not None and _same_sink(spec, of):
        problems["sink.topic"] = f"is the sink topic of {of.name!r}; two jobs cannot share one"
    return problems


def _same_sink(spec: JobSpec, of: JobSpec) -> bool:
    assert spec.sink is not None and of.sink is not None
    return (spec.sink.topic, spec.sink.connection) == (of.sink.topic, of.sink.connection)
