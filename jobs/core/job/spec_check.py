"""Check a spec up to the plans of its queries, and collect every problem with its position.

document ──► keys (schemas.spec.file) ──► JobSpec ──► queries (jobs.core.sql.select) ──► Plans
                  └────────── every problem with its key, line and column ◄───┘
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jobs.core.job.job_plan import empty_row_problems, plan_of
from jobs.core.job.time_rules import time_problems
from jobs.core.job.views import find_type_conflicts
from jobs.core.job.window_rules import closes, window_problems
from jobs.core.plan.tree import Plan
from jobs.core.sql.select import QueryError
from schemas.spec.file import Document, Problem, SpecError, validate
from schemas.spec.job import JobSpec, View
from schemas.spec.source_rows import ROW_KEYS, locate_key
from schemas.types.json_types import JsonObject

_QUERY = "query"
_NOT_OVER_JOIN = {
    "emit": "final is not possible over a join, because a later change of either side corrects the "
    "result; use changes",
    "allowed_lateness": "is not possible over a join, because a later change of either side "
    "corrects its windows; remove it",
}


@dataclass(frozen=True, slots=True)
class SpecCheck:
    """A spec and the plan of each view, the job's own query being ""; or what is wrong."""

    spec: JobSpec | None
    plans: Mapping[str, Plan]
    problems: tuple[Problem, ...]


def check_spec(document: Document) -> SpecCheck:
    """Check keys, queries, windows and the SQL of watermarks."""
    try:
        spec = validate(JobSpec, document)
    except SpecError as error:
        return SpecCheck(None, {}, (*error.problems, *_check_queries_alone(document)))
    plans: dict[str, Plan] = {}
    problems: list[Problem] = []
    for name, each in spec.view_specs.items():
        above = ("views", name) if name else ()
        try:
            plans[name] = plan_of(each)
        except QueryError as error:
            problems += _locate(document, (*above, _QUERY), error)
            continue
        source, wrong = plans[name].source, empty_row_problems(each, plans[name])
        if plans[name].relation is None:
            wrong |= window_problems(each.source_specs[source], plans[name])
        problems += [document.problem(_place(keys, above, source), wrong[keys]) for keys in wrong]
        if plans[name].relation is not None and closes(each):
            key = "emit" if each.emit == "final" else "allowed_lateness"
            problems.append(document.problem((*above, key), _NOT_OVER_JOIN[key]))
    for name, reason in find_type_conflicts(plans).items():
        problems.append(document.problem(("views", name, _QUERY), reason))
    for source, alone in spec.source_specs.items():
        for keys, wrong_sql in time_problems(alone):
            problems += _locate(document, locate_key(keys, source), wrong_sql)
    return SpecCheck(spec, plans, tuple(problems))


def sort_problems(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems in the order of the text, each reason in one line."""
    printable = [replace(each, reason=" ".join(each.reason.split())) for each in problems]
    return sorted(printable, key=lambda each: (each.line or 0, each.column or 0))


def _place(keys: tuple[str, ...], above: tuple[str, ...], source: str) -> tuple[str, ...]:
    """Return the path of a key of a view; others are keys of its source, or of the job."""
    if keys[0] in View.model_fields:
        return (*above, *keys)
    return locate_key(keys, source) if keys[0] in ("source", *ROW_KEYS) else keys


def _check_queries_alone(document: Document) -> list[Problem]:
    """Return the problems of the queries in an invalid spec, as far as its columns are valid."""
    given = document.value if isinstance(document.value, dict) else {}
    rows: JsonObject = {"source": {"topic": "unnamed"}, "columns": given.get("columns")}
    if "sources" in given:
        rows = {"sources": given["sources"]}
    found: list[Problem] = []
    for keys, query in _list_queries(document.value):
        minimal = {"name": "unnamed", **rows, _QUERY: query}
        try:
            plan_of(validate(JobSpec, replace(document, value=minimal)))
        except QueryError as error:
            found += _locate(document, keys, error)
        except SpecError:  # the whole spec has these problems too
            pass
    return found


def _list_queries(value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not isinstance(value, dict):
        return
    if _QUERY in value:
        yield (_QUERY,), value[_QUERY]
    views = value.get("views")
    for name, view in views.items() if isinstance(views, dict) else ():
        if isinstance(view, dict) and _QUERY in view:
            yield ("views", name, _QUERY), view[_QUERY]


def _locate(document: Document, keys: tuple[str, ...], error: QueryError) -> list[Problem]:
    return [
        document.problem_inside(
            keys,
            each.line,
            each.column,
            each.message + (f" (try: {each.hint})" if each.hint else ""),
        )
        for each in error.problems
    ]
