"""Read a spec file: spec and plans, or every problem of them with its position in the file.

file ──► keys (schemas.spec.file) ──► JobSpec ──► queries (jobs.core.sql.select) ──► Plans
                 └─ positions of keys ─┐               └─ line and column in the query
                                       └──► FILE:LINE:COL: path: reason ◄──┘
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from jobs.core.job.job_plan import plan_of
from jobs.core.job.time_rules import time_problems
from jobs.core.job.views import find_type_conflicts
from jobs.core.job.window_rules import window_problems
from jobs.core.plan.tree import Plan
from jobs.core.sql.select import QueryError, parse_query
from schemas.limits import SPEC_BYTES_MAX
from schemas.spec.file import (
    Document,
    Problem,
    SpecError,
    TextPosition,
    path_text,
    read_file,
    validate,
)
from schemas.spec.job import JobSpec, View
from schemas.types.sql_types import SqlType

QUERY = "query"
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "/": "/", " ": " "}


def load_job(path: Path) -> tuple[JobSpec, dict[str, Plan]]:
    """Return the spec in a file and the plan of each view; a SpecError has every problem.

    The plan of the job's own query has the name "".
    """
    try:
        return _load_job(path)
    except SpecError as error:
        with suppress(OSError, UnicodeDecodeError), path.open(encoding="utf-8-sig") as file:
            error.text = file.read(SPEC_BYTES_MAX)
        raise


def _load_job(path: Path) -> tuple[JobSpec, dict[str, Plan]]:
    document = read_file(path)
    try:
        spec = validate(JobSpec, document)
    except SpecError as error:
        raise SpecError(error.source, _add_query_problems(error.problems, document, path)) from None
    problems = _find_time_problems(spec, document)
    plans: dict[str, Plan] = {}
    for name, each in spec.view_specs.items():
        above = ("views", name) if name else ()
        try:
            plans[name] = plan_of(each)
        except QueryError as error:
            problems = [*_locate_problems(error, document, path, above), *problems]
        else:
            wrong = window_problems(each, plans[name])
            problems += [
                document.problem(_place_key(keys, above), reason) for keys, reason in wrong.items()
            ]
    for name, reason in find_type_conflicts(plans).items():
        problems.append(document.problem(("views", name, QUERY), reason))
    if problems:
        raise SpecError(document.name, _sort_problems(problems))
    return spec, plans


def _place_key(keys: tuple[str, ...], above: tuple[str, ...]) -> tuple[str, ...]:
    """Return the path of a key of a view; keys that all views share are keys of the job."""
    return (*above, *keys) if keys[0] in View.model_fields else keys


def _add_query_problems(problems: list[Problem], document: Document, path: Path) -> list[Problem]:
    """Add the problems of the query to those of the keys, if the columns can be read."""
    value = document.value
    query = value.get(QUERY) if isinstance(value, dict) else None
    if not isinstance(query, str) or any(problem.path == QUERY for problem in problems):
        return problems
    try:
        columns = {str(k): SqlType.parse(str(v)) for k, v in value["columns"].items()}
        parse_query(query, columns)
    except QueryError as error:
        return _sort_problems([*problems, *_locate_problems(error, document, path)])
    except (AttributeError, KeyError, ValueError):  # the problems name the columns already
        pass
    return problems


def _sort_problems(problems: list[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0))


def _find_time_problems(spec: JobSpec, document: Document) -> list[Problem]:
    """Return the problems of the SQL in the `watermark` section."""
    return [
        document.problem(keys, str(each))
        for keys, error in time_problems(spec)
        for each in error.problems
    ]


def _locate_problems(
    error: QueryError, document: Document, path: Path, above: tuple[str, ...] = ()
) -> list[Problem]:
    """Return the problems of a query, which is the job's own or that of the view `above` it."""
    text, keys, query = path.read_text("utf-8-sig"), (*above, QUERY), document.value
    for key in keys:
        query = query.get(key) if isinstance(query, dict) else None
    found = []
    for problem in error.problems:
        hint = f" (try: {problem.hint})" if problem.hint else ""
        event = _find_view_query(text, keys) if above else _find_query_event(text)
        position = _locate_in_query(text, str(query), event, problem.line, problem.column)
        if position is None:  # the query is an alias or so: give the position inside it
            reason = f"line {problem.line}, column {problem.column}: {problem.message}{hint}"
            found.append(document.problem(keys, reason))
        else:
            name = path_text(keys)
            found.append(Problem(name, problem.message + hint, position.line, position.column))
    return found


def _locate_in_query(
    text: str, query: str, event: Any, line: int, column: int
) -> TextPosition | None:
    """Return the position in the file of a position in the query, whose value is `event`."""
    if event is None:
        return None
    lines = query.split("\n")
    wanted = sum(len(each) + 1 for each in lines[: line - 1]) + column - 1
    at = _find_index(text, event, query, min(wanted, len(query)))
    if at is None:
        return None
    return TextPosition(text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1)


def _find_view_query(text: str, keys: tuple[str, ...]) -> Any:
    """Return the parser's node of the value below these keys, or None."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    for key in keys:
        if not isinstance(node, yaml.MappingNode):
            return None
        node = next((value for name, value in node.value if name.value == key), None)
    return node if isinstance(node, yaml.ScalarNode) else None


def _find_query_event(text: str) -> Any:
    """Return the parser's event of the value of the top-level key `query`."""
    depth, at_key, found = 0, True, False
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            depth += 1
            at_key = True  # a mapping or list here is a value; a key follows it
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1
        elif isinstance(event, (yaml.ScalarEvent, yaml.AliasEvent)) and depth == 1:
            if found:
                return event if isinstance(event, yaml.ScalarEvent) else None
            found = at_key and isinstance(event, yaml.ScalarEvent) and event.value == QUERY
            at_key = not at_key
    return None


def _find_index(text: str, event: Any, query: str, wanted: int) -> int | None:
    """Return the index in the file of a character of the query.

    Walk through both side by side. White space of the one matches any white space of the other, for
    YAML folds and indents.
    """
    at = event.start_mark.index
    if event.style in ("|", ">"):
        at = text.index("\n", at)
    elif event.style is not None:
        at += 1
    for character in query[:wanted]:
        at = _skip_character(text, at, character, event.style)
        if at < 0:
            return None
    while at < len(text) and text[at].isspace() and not query[wanted : wanted + 1].isspace():
        at += 1
    return int(at)


def _skip_character(text: str, at: int, character: str, style: str | None) -> int:
    """Return the index behind one character of the query; -1 if the file differs."""
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
