"""Pages that edit a spec: of a new or an existing job, with errors and plan beside it.

text ──► POST /preview ──► errors, each with its position
                     └───► result columns, dataflow; a trial run on the newest messages
text ──► PUT /v1/jobs/NAME   (assets/spec.js)
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from jobs.core.plan.tree import Plan
from jobs.core.sql.printer import aggregate_sql, expression_sql
from jobs.topics.samples import Sample, sort_newest
from schemas.limits import SPEC_BYTES_MAX
from schemas.spec import connections
from schemas.spec import file as spec_file
from schemas.spec.file import SpecError, load_spec, spec_text
from schemas.spec.job import JobSpec
from service.access.tokens import Role
from service.console.editor.flink import convert_flink_sql
from service.console.editor.trial import run_trial
from service.console.editor.vocabulary import (
    STARTERS,
    find_starter,
    make_vocabulary,
    with_free_name,
)
from service.console.job_view import find_job
from service.console.page import Context, PageRoute, render_page
from service.console.pictures.dataflow import WIDTH, draw_dataflow
from service.console.visitor import require_visitor
from service.problems import Problem
from service.runtime import Runtime, runtime_of
from service.supervision.spec_body import CheckedSpec

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@dataclass(frozen=True, slots=True)
class ResultColumn:
    name: str
    type: str
    expression: str  # as SQL


@router.get("/new")
async def new_page(
    request: Request,
    topic: str = "",
    connection: str = connections.DEFAULT,
    template: str = STARTERS[0].name,
    flink: bool = False,
) -> Response:
    """Show the editor for a new job; with a topic, suggest a spec from its messages."""
    visitor = require_visitor(request, Role.ADMIN)
    runtime = runtime_of(request)
    starter = find_starter(template)
    draft = _Draft(starter.text)
    if topic.strip():
        request.state.reads = (f"{connection}/{topic.strip()}",)
        draft = await _draft_spec(runtime, topic.strip()[:1_000], connection, starter.text)
    known = sorted(runtime.settings.connections.by_name)
    return await render_page(
        request,
        visitor,
        "editor/new.html",
        text=with_free_name(draft.text, {each.name for each in runtime.jobs.list_records()}),
        vocabulary=make_vocabulary(),
        starters=STARTERS,
        chosen="" if topic or flink else starter.name,
        flink=flink,
        warning=draft.warning,
        topic=topic,
        connection=connection,
        connections=known,
    )


@dataclass(frozen=True, slots=True)
class _Draft:
    """The text that the editor starts with."""

    text: str
    warning: str | None = None  # why there is no suggestion


async def _draft_spec(runtime: Runtime, topic: str, connection: str, otherwise: str) -> _Draft:
    """Return a suggestion from the messages of a topic, or another text with a warning."""
    try:
        found = await runtime.suggest_spec(connection, topic)
    except Problem as problem:
        return _Draft(otherwise, problem.detail)
    return _Draft(otherwise, found.reason) if found.text is None else _Draft(found.text)


@router.get("/jobs/{name}/spec")
async def spec_page(request: Request, name: str) -> Response:
    """Show the spec of a job; admins can change it."""
    visitor = require_visitor(request)
    job = find_job(request, name)
    text, changed = spec_text(job.spec), []
    if job.record.pending is not None:
        pending = spec_text(load_spec(msgspec.json.decode(job.record.pending)))
        changed = _compare_texts(text, pending)
    return await render_page(
        request,
        visitor,
        "editor/spec.html",
        job=job,
        tab="spec",
        text=text,
        lines=changed,
        vocabulary=make_vocabulary(),
    )


def _compare_texts(old: str, new: str) -> list[tuple[str, str]]:
    """Return the lines of both texts, each marked as added, removed or same."""
    kinds = {"+ ": "added", "- ": "removed", "  ": "same"}
    lines = difflib.ndiff(old.splitlines(), new.splitlines())
    return [(kinds[line[:2]], line) for line in lines if line[:2] in kinds]


@router.post("/from-flink")
async def convert_flink(request: Request) -> Response:
    """Return the specs of a file of Flink SQL, a fragment of a page."""
    visitor = require_visitor(request, Role.ADMIN)
    work = partial(convert_flink_sql, await _read_body(request))
    found = await runtime_of(request).attempts.run(work)
    return await render_page(request, visitor, "editor/flink.html", found=found)


async def _read_body(request: Request) -> bytes:
    body = await request.body()
    if len(body) > SPEC_BYTES_MAX:
        raise Problem("body-too-large", f"a spec must not exceed {SPEC_BYTES_MAX} bytes")
    return body


@router.post("/preview")
async def preview(
    request: Request,
    name: Annotated[str | None, Query(description="the job whose spec it is")] = None,
    sample: bool = False,
) -> Response:
    """Return the preview of a spec, a fragment of a page: errors, or plan and trial."""
    visitor = require_visitor(request, Role.ADMIN)
    runtime = runtime_of(request)
    values = await _make_preview(runtime, await _read_body(request), name, sample)
    if values["trial"] is not None:
        spec = values["checked"].spec
        connections = spec.topic_connections.items()
        request.state.reads = [f"{connection}/{topic}" for topic, connection in connections]
    return await render_page(
        request, visitor, "editor/preview.html", dataflow_width=WIDTH, **values
    )


async def _make_preview(runtime: Runtime, body: bytes, name: str | None, sample: bool) -> Context:
    values: Context = {"errors": [], "checked": None, "trial": None, "unavailable": None}
    try:
        checked = await runtime.check_spec(body, name)
    except SpecError as error:
        return values | {"errors": error.problems}
    except Problem as problem:
        return values | {"errors": [spec_file.Problem("", problem.detail)]}
    spec = checked.spec.with_defaults(runtime.settings.time_defaults)
    values |= await run_in_threadpool(_describe_plan, checked, spec)
    values["taken"] = name is None and runtime.register.find_job(checked.spec.name) is not None
    if sample:
        try:
            messages = await _read_samples(runtime, spec)
            values["trial"] = await runtime.attempts.run(
                partial(
                    run_trial,
                    checked.main,
                    checked.plan,
                    messages,
                    runtime.settings.connections,
                )
            )
        except Problem as problem:
            values["unavailable"] = problem.detail
    return values


async def _read_samples(runtime: Runtime, spec: JobSpec) -> list[Sample]:
    """Return the newest messages of each source, newest first; one of several sources once."""
    found: set[Sample] = set()
    sources = [each.source for each in spec.source_specs.values()]
    for connection, topics in dict.fromkeys((each.connection, each.topics) for each in sources):
        found.update(await runtime.samples.read_newest(connection, topics))
    return sort_newest(found)


def _describe_plan(checked: CheckedSpec, spec: JobSpec) -> Context:
    columns, dataflow = _list_columns(checked.plan), draw_dataflow(spec.main, checked.plan, {})
    return {"checked": checked, "columns": columns, "dataflow": dataflow}


def _list_columns(plan: Plan) -> list[ResultColumn]:
    expressions = {named.name: expression_sql(named.expression) for named in plan.group}
    expressions |= {each.name: aggregate_sql(plan, each) for each in plan.aggregates}
    expressions |= {named.name: expression_sql(named.expression, plan) for named in plan.computed}
    return [ResultColumn(name, str(plan.types[name]), expressions[name]) for name in plan.output]
