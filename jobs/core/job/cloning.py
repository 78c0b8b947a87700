"""Cloning: the spec of a job that starts with the state of another job."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.core.job.views import plans_of
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec, source_sections
from schemas.spec.source_rows import locate_key


def clone_spec(spec: JobSpec, name: str) -> JobSpec:
    """Return a job's spec under a new name, without its sinks and consumer group.

    Two jobs cannot share a sink topic: its changelog would have every change twice.
    """
    document = spec.document() | {"name": name}
    for section in (document, *document.get("views", {}).values()):
        section.pop("sink", None)
    for source in source_sections(document):
        source.pop("group", None)
    return load_spec(document)


def clone_problems(spec: JobSpec, of: JobSpec) -> dict[str, str]:
    """Return why a job of `spec` cannot continue with the state of the job `of`, by spec key."""
    problems = {}
    specs, others = spec.view_specs, of.view_specs
    if specs.keys() != others.keys():
        named = ", ".join(name or "the query" for name in others)
        problems["views"] = f"must be those of {of.name!r}: {named}"
    plans, their_plans = plans_of(spec), plans_of(of)
    for name in others:
        if name not in specs:
            continue
        key = f"views.{name}." if name else ""
        if plans[name].fingerprint != their_plans[name].fingerprint:
            problems[f"{key}query"] = (
                f"must be the query of {of.name!r}, over the same column types"
            )
        buckets = others[name].state.buckets
        if specs[name].state.buckets != buckets:
            problems[f"{key}state.buckets"] = f"must be {buckets}, as in {of.name!r}"
    sources = spec.source_specs
    for name, theirs in of.source_specs.items():
        if name not in sources:
            problems["sources"] = f"must be those of {of.name!r}: {', '.join(of.topics_by_source)}"
            break
        own = sources[name]
        if (own.dedupe, own.primary_key) != (theirs.dedupe, theirs.primary_key):
            key = ".".join(locate_key(("dedupe",), name))
            problems[key] = f"must be as in {of.name!r}, with the same primary_key"
        missing = sorted(set(theirs.source.topics) - set(own.source.topics))
        if missing:
            key = ".".join(locate_key(("source", "topics"), name))
            problems[key] = f"must have {missing[0]!r}: its rows stay in the state"
    taken = {topic for _, topic in _list_sinks(of)}
    for name, topic in _list_sinks(spec):
        if topic in taken:
            key = f"views.{name}.sink.topic" if name else "sink.topic"
            problems[key] = f"is the sink topic of {of.name!r}; two jobs cannot share one"
    return problems


def _list_sinks(spec: JobSpec) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the views that have a sink, with its topic and its connection."""
    for name, view in spec.view_specs.items():
        if view.sink is not None:
            yield name, (view.sink.topic, view.sink.connection)
