"""A job spec in the body of a request: YAML or JSON, checked up to the plans of its queries.

Lines and columns of problems refer to the body.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from jobs.core.job.spec_check import check_spec, sort_problems
from jobs.core.job.views import plans_of
from jobs.core.job.window_rules import window_notes
from jobs.core.plan.tree import Plan
from schemas.spec.connections import Connections, UnknownConnectionError
from schemas.spec.file import Document, Problem, SpecError, read_text
from schemas.spec.job import JobSpec
from schemas.spec.sink import Sink
from schemas.spec.source import Source
from schemas.spec.source_rows import locate_key
from schemas.spec.watermark import NO_DEFAULTS, TimeDefaults

_NAME = "<body>"


@dataclass(frozen=True, slots=True)
class CheckedSpec:
    spec: JobSpec
    plans: Mapping[str, Plan]  # of each view; "" is the job's own query
    notes: tuple[Problem, ...] = ()  # what may surprise in a valid spec

    @property
    def main(self) -> JobSpec:
        """The spec of the job's own query, or of its first view."""
        return self.spec.main

    @property
    def plan(self) -> Plan:
        """The plan of this query."""
        return next(iter(self.plans.values()))

    def with_column_order(self, other: JobSpec) -> CheckedSpec:
        spec = self.spec.with_column_order(other)
        return self if spec is self.spec else replace(self, spec=spec, plans=plans_of(spec))


def read_spec(
    body: bytes, name: str | None, connections: Connections, defaults: TimeDefaults = NO_DEFAULTS
) -> CheckedSpec:
    """Return the spec in a body; raise SpecError with all of its problems.

    `name` is the job's name in the address: the body may omit it, but must not contain another.
    `defaults` apply to watermark sections that do not say.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 text: see byte {error.start}"
        raise SpecError(_NAME, [Problem("", reason)]) from None
    document = read_text(text, _NAME)
    problems = [] if name is None else _check_name(document, name)
    found = check_spec(document)
    problems += found.problems
    if found.spec is not None:
        problems += _check_connections(document, found.spec, connections)
    if found.spec is None or problems:
        raise SpecError(_NAME, sort_problems(problems))
    noted = window_notes(found.spec.with_defaults(defaults))
    notes = tuple(document.problem(keys, reason) for keys, reason in noted.items())
    return CheckedSpec(found.spec, found.plans, notes)


def _check_name(document: Document, name: str) -> list[Problem]:
    """Add the name of the address to a body without one; return a problem for another name."""
    value: Any = document.value
    if not isinstance(value, dict):
        return []  # validate() reports this
    given = value.setdefault("name", name)
    if given == name or not isinstance(given, str):
        return []
    reason = f"differs from the name in the address, {name!r}; change or remove it"
    return [document.problem(("name",), reason)]


def _check_connections(document: Document, spec: JobSpec, known: Connections) -> list[Problem]:
    """Return a problem for each connection that the operator has not configured."""
    sections: list[tuple[tuple[str, ...], Source | Sink]] = [
        (locate_key(("source", "connection"), name)[:-1], alone.source)
        for name, alone in spec.source_specs.items()
        if alone.source.files is None
    ]
    for view, own in spec.view_specs.items():
        if own.sink is not None:
            sections.append((("views", view, "sink") if view else ("sink",), own.sink))
    lookups = {"connection": known.lookup, "schema_registry": known.lookup_registry}
    problems = []
    for path, section in sections:
        for key, look_up in lookups.items():
            try:
                if (name := getattr(section, key)) is not None:
                    look_up(name)
            except UnknownConnectionError as error:
                problems.append(document.problem((*path, key), str(error)))
    for name, alone in spec.source_specs.items():
        try:
            if (snapshot := alone.source.snapshot) is not None and snapshot.jdbc is not None:
                known.lookup_database(snapshot.jdbc.connection)
        except UnknownConnectionError as error:
            path = locate_key(("source", "snapshot", "jdbc", "connection"), name)
            problems.append(document.problem(path, str(error)))
    return problems
