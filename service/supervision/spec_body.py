"""A job spec as a request brings it: YAML or JSON, checked up to the plan of its query.

    body ──► keys (schemas.spec.file) ──► JobSpec ──► query (jobs.core.sql.select) ──► Plan
                      └──────────── every problem with its key, line and column ◄───┘

Lines and columns are those of the body; a problem inside the query also says where in the query.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from jobs.core.job.job_plan import plan_of
from jobs.core.job.window_rules import window_problems
from jobs.core.plan.tree import Plan
from jobs.core.sql.marker import Marker
from jobs.core.sql.select import QueryError
from schemas.spec.connections import Connections, UnknownConnectionError
from schemas.spec.file import Document, Problem, SpecError, read_text, validated
from schemas.spec.job import JobSpec

_NAME = "<body>"


@dataclass(frozen=True, slots=True)
class CheckedSpec:
    spec: JobSpec
    plan: Plan

    def ordered_as(self, other: JobSpec) -> CheckedSpec:
        spec = self.spec.ordered_as(other)
        return self if spec is self.spec else CheckedSpec(spec, plan_of(spec))


def read_spec(body: bytes, name: str | None, connections: Connections) -> CheckedSpec:
    """The spec in a body; SpecError has everything that is wrong with it.

    `name` is that of the job's address: the body may leave it out, and must not differ.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 text: see byte {error.start}"
        raise SpecError(_NAME, [Problem("", reason)]) from None
    document = read_text(text, _NAME)
    problems = [] if name is None else _named(document, name)
    try:
        spec = validated(JobSpec, document)
    except SpecError as error:
        raise SpecError(_NAME, _in_order([*problems, *error.problems])) from None
    plan: Plan | None = None
    try:
        plan = plan_of(spec)
    except QueryError as error:
        problems += _of_query(document, ("query",), error)
    else:
        wrong = window_problems(spec, plan)
        problems += [document.problem(keys, reason) for keys, reason in wrong.items()]
    if spec.watermark.marker is not None:
        try:
            Marker.of(spec.watermark.marker, spec.columns)
        except QueryError as error:
            problems += _of_query(document, ("watermark", "marker"), error)
    problems += _of_connections(document, spec, connections)
    if problems or plan is None:
        raise SpecError(_NAME, _in_order(problems))
    return CheckedSpec(spec, plan)


def _named(document: Document, name: str) -> list[Problem]:
    """Put the address's name into a body without one; a problem where another is given."""
    value: Any = document.value
    if not isinstance(value, dict):
        return []  # which is a problem of its own
    given = value.setdefault("name", name)
    if given == name or not isinstance(given, str):
        return []
    reason = f"is another name than the address has, which is {name!r}; change or remove it"
    return [document.problem(("name",), reason)]


def _of_query(document: Document, keys: tuple[str, ...], error: QueryError) -> list[Problem]:
    found = []
    for each in error.problems:
        hint = f" (try: {each.hint})" if each.hint else ""
        reason = f"line {each.line}, column {each.column}: {each.message}{hint}"
        found.append(document.problem(keys, reason))
    return found


def _of_connections(document: Document, spec: JobSpec, known: Connections) -> list[Problem]:
    """A spec names connections of the operator's; it never has an address."""
    named = [("source", spec.source.connection)]
    if spec.sink is not None:
        named.append(("sink", spec.sink.connection))
    problems = []
    for section, connection in named:
        try:
            known.named(connection)
        except UnknownConnectionError as error:
            problems.append(document.problem((section, "connection"), str(error)))
    return problems


def _in_order(problems: list[Problem]) -> list[Problem]:
    printable = [replace(each, reason=" ".join(each.reason.split())) for each in problems]
    return sorted(printable, key=lambda each: (each.line or 0, each.column or 0))
