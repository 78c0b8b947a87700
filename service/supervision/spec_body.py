"""A job spec in the body of a request: YAML or JSON, checked up to the plan of its query.

    body ──► keys (schemas.spec.file) ──► JobSpec ──► query (jobs.core.sql.select) ──► Plan
                      └──────────── every problem with its key, line and column ◄───┘

Lines and columns refer to the body; a problem of the query also has a position in the query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from jobs.core.job.job_plan import plan_of
from jobs.core.job.time_rules import time_problems
from jobs.core.job.views import find_type_conflicts, plans_of
from jobs.core.job.window_rules import window_notes, window_problems
from jobs.core.plan.tree import Plan
from jobs.core.sql.select import QueryError
from schemas.spec.connections import Connections, UnknownConnectionError
from schemas.spec.file import Document, Problem, SpecError, read_text, validate
from schemas.spec.job import JobSpec, View

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
    body: bytes, name: str | None, connections: Connections, idle_after_ms: int | None = None
) -> CheckedSpec:
    """Return the spec in a body; raise SpecError with all of its problems.

    `name` is the job's name in the address: the body may omit it, but must not contain another.
    `idle_after_ms` applies to a spec without `idle_after`.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 text: see byte {error.start}"
        raise SpecError(_NAME, [Problem("", reason)]) from None
    document = read_text(text, _NAME)
    problems = [] if name is None else _check_name(document, name)
    try:
        spec = validate(JobSpec, document)
    except SpecError as error:
        problems += [*error.problems, *_check_query_alone(document)]
        raise SpecError(_NAME, _sort(problems)) from None
    plans: dict[str, Plan] = {}
    for view, own in spec.view_specs.items():
        above = ("views", view) if view else ()
        try:
            plans[view] = plan_of(own)
        except QueryError as error:
            problems += _locate_query_problems(document, (*above, "query"), error)
        else:
            wrong = window_problems(own, plans[view])
            problems += [
                document.problem((*above, *keys) if keys[0] in View.model_fields else keys, reason)
                for keys, reason in wrong.items()
            ]
    for view, reason in find_type_conflicts(plans).items():
        problems.append(document.problem(("views", view, "query"), reason))
    for keys, wrong_sql in time_problems(spec):
        problems += _locate_query_problems(document, keys, wrong_sql)
    problems += _check_connections(document, spec, connections)
    if problems:
        raise SpecError(_NAME, _sort(problems))
    noted = window_notes(spec.with_idle_default(idle_after_ms))
    notes = tuple(document.problem(keys, reason) for keys, reason in noted.items())
    return CheckedSpec(spec, plans, notes)


def _check_query_alone(document: Document) -> list[Problem]:
    """Return the query's problems in an invalid spec, as far as its columns are valid."""
    value: Any = document.value
    needed = ("columns", "query")
    if not isinstance(value, dict) or not all(key in value for key in needed):
        return []
    minimal = {"name": "unnamed", "source": {"topic": "unnamed"}}
    minimal |= {key: value[key] for key in needed}
    try:
        plan_of(validate(JobSpec, replace(document, value=minimal)))
    except SpecError:
        return []  # validate() has reported these problems
    except QueryError as error:
        return _locate_query_problems(document, ("query",), error)
    return []


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


def _locate_query_problems(
    document: Document, keys: tuple[str, ...], error: QueryError
) -> list[Problem]:
    found = []
    for each in error.problems:
        hint = f" (try: {each.hint})" if each.hint else ""
        reason = f"line {each.line}, column {each.column}: {each.message}{hint}"
        found.append(document.problem(keys, reason))
    return found


def _check_connections(document: Document, spec: JobSpec, known: Connections) -> list[Problem]:
    """Return a problem for each connection that the operator has not configured."""
    named: list[tuple[tuple[str, ...], str]] = [(("source",), spec.source.connection)]
    for view, own in spec.view_specs.items():
        if own.sink is not None:
            named.append((("views", view, "sink") if view else ("sink",), own.sink.connection))
    problems = []
    for section, connection in named:
        try:
            known.lookup(connection)
        except UnknownConnectionError as error:
            problems.append(document.problem((*section, "connection"), str(error)))
    return problems


def _sort(problems: list[Problem]) -> list[Problem]:
    printable = [replace(each, reason=" ".join(each.reason.split())) for each in problems]
    return sorted(printable, key=lambda each: (each.line or 0, each.column or 0))
