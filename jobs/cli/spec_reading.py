"""A spec file as a job: spec and plan, or every problem of both with its place in the file.

file ──► keys (schemas.spec.file) ──► JobSpec ──► query (jobs.core.sql.select) ──► Plan
                 └─ places of keys ─┐                  └─ line and column in the query
                                    └──► FILE:LINE:COL: path: reason ◄──┘
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from jobs.core.job.job_plan import plan_of
from jobs.core.job.window_rules import window_problems
from jobs.core.plan.tree import Plan
from jobs.core.sql.marker import Marker
from jobs.core.sql.select import QueryError, parse_query
from schemas.spec.file import Document, Place, Problem, SpecError, read_file, validated
from schemas.spec.job import JobSpec
from schemas.types.sql_types import SqlType

QUERY = "query"
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "/": "/", " ": " "}


def load_job(path: Path) -> tuple[JobSpec, Plan]:
    """The spec in a file and the plan of its query; a SpecError has all that is wrong."""
    document = read_file(path)
    try:
        spec = validated(JobSpec, document)
    except SpecError as error:
        raise SpecError(error.source, _in_order(error.problems, document, path)) from None
    problems = _marker_problems(spec, document)
    try:
        plan = plan_of(spec)
    except QueryError as error:
        problems = [*_query_problems(error, document, path), *problems]
    else:
        wrong = window_problems(spec, plan)
        problems += [document.problem(keys, reason) for keys, reason in wrong.items()]
    if problems:
        raise SpecError(document.name, _sorted(problems))
    return spec, plan


def _in_order(problems: list[Problem], document: Document, path: Path) -> list[Problem]:
    """Problems of the keys, and those of the query where its columns can be read."""
    value = document.value
    query = value.get(QUERY) if isinstance(value, dict) else None
    if not isinstance(query, str) or any(problem.path == QUERY for problem in problems):
        return problems
    try:
        columns = {str(k): SqlType.parse(str(v)) for k, v in value["columns"].items()}
        parse_query(query, columns)
    except QueryError as error:
        return _sorted([*problems, *_query_problems(error, document, path)])
    except (AttributeError, KeyError, ValueError):  # the columns are wrong too, and said so
        pass
    return problems


def _sorted(problems: list[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0))


def _marker_problems(spec: JobSpec, document: Document) -> list[Problem]:
    """What is wrong with the marker of a punctuated watermark, at the marker's own place."""
    try:
        if spec.watermark.marker is not None:
            Marker.of(spec.watermark.marker, spec.columns)
    except QueryError as error:
        return [document.problem(("watermark", "marker"), str(each)) for each in error.problems]
    return []


def _query_problems(error: QueryError, document: Document, path: Path) -> list[Problem]:
    text = path.read_text("utf-8-sig")
    found = []
    for problem in error.problems:
        hint = f" (try: {problem.hint})" if problem.hint else ""
        place = _place_in_query(text, document.value[QUERY], problem.line, problem.column)
        if place is None:  # a query in a form that cannot be walked: the place inside it, then
            reason = f"line {problem.line}, column {problem.column}: {problem.message}{hint}"
            found.append(document.problem((QUERY,), reason))
        else:
            found.append(Problem(QUERY, problem.message + hint, place.line, place.column))
    return found


def _place_in_query(text: str, query: str, line: int, column: int) -> Place | None:
    """Where in the file a place of the query stands, whatever the style of its scalar."""
    event = _query_event(text)
    if event is None:
        return None
    lines = query.split("\n")
    wanted = sum(len(each) + 1 for each in lines[: line - 1]) + column - 1
    at = _walked(text, event, query, min(wanted, len(query)))
    if at is None:
        return None
    return Place(text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1)


def _query_event(text: str) -> Any:
    """The parser's event of the value of the top-level key `query`."""
    depth, at_key, found = 0, True, False
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            depth += 1
            at_key = True  # what begins inside the top mapping is a value; a key follows it
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1
        elif isinstance(event, (yaml.ScalarEvent, yaml.AliasEvent)) and depth == 1:
            if found:
                return event if isinstance(event, yaml.ScalarEvent) else None
            found = at_key and isinstance(event, yaml.ScalarEvent) and event.value == QUERY
            at_key = not at_key
    return None


def _walked(text: str, event: Any, query: str, wanted: int) -> int | None:
    """The index in the file of a character of the query: both are walked side by side, where any
    white space of the one stands for any of the other (folding, indentation)."""
    at = event.start_mark.index
    if event.style in ("|", ">"):
        at = text.index("\n", at)
    elif event.style is not None:
        at += 1
    for character in query[:wanted]:
        at = _past(text, at, character, event.style)
        if at < 0:
            return None
    while at < len(text) and text[at].isspace() and not query[wanted : wanted + 1].isspace():
        at += 1
    return int(at)


def _past(text: str, at: int, character: str, style: str | None) -> int:
    """The index behind one character of the query; -1 where the file says something else."""
    escaped = style == '"' and text.startswith("\\", at)
    if character.isspace():
        if escaped and _ESCAPES.get(text[at + 1 : at + 2]) == character:
            return at + 2
        while at < len(text) and text[at].isspace():
            at += 1
        return at
    while at < len(text) and text[at].isspace():
        at += 1
    if style == '"' and text.startswith("\\", at):
        return at + 2 if _ESCAPES.get(text[at + 1 : at + 2]) == character else -1
    if text[at : at + 1] != character:
        return -1
    return at + (2 if style == "'" and character == "'" else 1)
