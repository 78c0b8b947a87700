"""Cloning: the spec of a job that begins with the state of another."""

from __future__ import annotations

from jobs.core.plan.tree import Plan
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec


def cloned_spec(spec: JobSpec, name: str) -> JobSpec:
    """The spec of another job under a new name: with its own group, and without the sink, for two
    jobs in one topic would be one changelog that says everything twice."""
    document = spec.document() | {"name": name}
    document.pop("sink", None)
    document["source"].pop("group", None)
    return load_spec(document)


def misfits(spec: JobSpec, plan: Plan, of: JobSpec, plan_of: Plan) -> dict[str, str]:
    """Why a job of `spec` cannot go on with the state of a job `of`, by key."""
    found = {}
    if plan.fingerprint != plan_of.fingerprint:
        found["query"] = f"must be the query of {of.name!r}, over the same column types"
    if spec.state.buckets != of.state.buckets:
        found["state.buckets"] = f"must be {of.state.buckets}, as {of.name!r} has it"
    if (spec.dedupe, spec.primary_key) != (of.dedupe, of.primary_key):
        found["dedupe"] = f"must be as {of.name!r} has it, with the same primary_key"
    left = sorted(set(of.source.topics) - set(spec.source.topics))
    if left:
        found["source.topics"] = f"must have {left[0]!r}: its rows are in the state for good"
    if spec.sink is not None and of.sink is not None and _same_sink(spec, of):
        found["sink.topic"] = f"is that of {of.name!r}; a changelog has one job"
    return found


def _same_sink(spec: JobSpec, of: JobSpec) -> bool:
    assert spec.sink is not None and of.sink is not None
    return (spec.sink.topic, spec.sink.connection) == (of.sink.topic, of.sink.connection)
