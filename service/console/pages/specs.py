"""Specs: a new job, or the spec of one that is there, with its mistakes and its plan beside it.

text ──► POST /preview ──► mistakes, each with its place
                     └───► result columns, topology; what the newest messages become
text ──► PUT /v1/jobs/NAME   (assets/spec.js)
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from jobs.core.plan.tree import Plan
from jobs.core.sql.printer import aggregate_sql, expression_sql
from schemas.limits import SPEC_BYTES_MAX
from schemas.spec import connections
from schemas.spec import file as spec_file
from schemas.spec.file import SpecError, load_spec, spec_text
from service.access.tokens import Role
from service.console.editor.suggestion import suggested
from service.console.editor.trial import tried
from service.console.job_view import job_view
from service.console.page import PageRoute, page
from service.console.pictures.dataflow import WIDTH, topology
from service.console.visitor import visitor_of
from service.problems import Problem
from service.runtime import Runtime, runtime_of
from service.supervision.spec_body import CheckedSpec

router = APIRouter(include_in_schema=False, route_class=PageRoute)

EXAMPLE = """\
name: items
source:
  topic: shop.product
  format: canal-json
columns: {id: BIGINT, name: STRING, cnt: INT}
query: |
  SELECT name, SUM(cnt), MAX(cnt) AS top, COUNT(*) AS n
  FROM product
  GROUP BY name
sink: {topic: items-changes}
"""


@dataclass(frozen=True, slots=True)
class ResultColumn:
    name: str
    type: str
    meaning: str  # as the query has it


@router.get("/new")
async def new_page(
    request: Request, topic: str = "", connection: str = connections.DEFAULT
) -> Response:
    """A job that is not there yet; with a topic, what its newest messages suggest."""
    visitor = visitor_of(request, Role.ADMIN)
    runtime = runtime_of(request)
    begun = _Beginning(EXAMPLE)
    if topic.strip():
        begun = await run_in_threadpool(_begun, runtime, topic.strip()[:1_000], connection)
    known = sorted(runtime.settings.connections.by_name)
    return await page(
        request, visitor, "new.html",
        text=begun.text, told=begun.told, topic=topic, connection=connection, connections=known,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Beginning:
    text: str
    told: str | None = None  # why it is not what was asked for


def _begun(runtime: Runtime, topic: str, connection: str) -> _Beginning:
    """What the messages of a topic suggest; the example where they do not."""
    try:
        messages = runtime.samples.newest(connection, [topic])
    except Problem as problem:
        return _Beginning(EXAMPLE, problem.detail)
    except connections.UnknownConnectionError as error:
        return _Beginning(EXAMPLE, str(error))
    if not messages:
        return _Beginning(EXAMPLE, f"topic {topic!r} is empty, so nothing can be read off it")
    text = suggested(topic, connection, [each.value for each in messages])
    if text is None:
        return _Beginning(EXAMPLE, "its newest messages are of no format that is known here")
    return _Beginning(text)


@router.get("/jobs/{name}/spec")
async def spec_page(request: Request, name: str) -> Response:
    """The spec of a job, to be read, and by admins to be changed."""
    visitor = visitor_of(request)
    job = job_view(request, name)
    text, changed = spec_text(job.spec), []
    if job.record.pending is not None:
        pending = spec_text(load_spec(msgspec.json.decode(job.record.pending)))
        changed = _compared(text, pending)
    return await page(request, visitor, "spec.html", job=job, tab="spec", text=text, lines=changed)


def _compared(old: str, new: str) -> list[tuple[str, str]]:
    """The lines of both, each with what became of it: added, gone, or the same."""
    kinds = {"+ ": "added", "- ": "gone", "  ": "same"}
    lines = difflib.ndiff(old.splitlines(), new.splitlines())
    return [(kinds[line[:2]], line) for line in lines if line[:2] in kinds]


@router.post("/preview")
async def preview(
    request: Request,
    name: Annotated[str | None, Query(description="of the job whose spec it is")] = None,
    sample: bool = False,
) -> Response:
    """What a spec would be, as a piece of a page: mistakes, or plan and trial."""
    visitor = visitor_of(request, Role.ADMIN)
    runtime = runtime_of(request)
    body = await request.body()
    if len(body) > SPEC_BYTES_MAX:
        raise Problem("body-too-large", 413, f"a spec has at most {SPEC_BYTES_MAX} bytes")
    shown = await _preview(runtime, body, name, sample)
    return await page(request, visitor, "preview.html", topology_width=WIDTH, **shown)


async def _preview(runtime: Runtime, body: bytes, name: str | None, sample: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {"mistakes": [], "checked": None, "trial": None, "silent": None}
    try:
        checked = await runtime.check(body, name)
    except SpecError as error:
        return shown | {"mistakes": error.problems}
    except Problem as problem:
        return shown | {"mistakes": [spec_file.Problem("", problem.detail)]}
    shown |= await run_in_threadpool(_planned, checked)
    shown["taken"] = name is None and runtime.register.job(checked.spec.name) is not None
    if sample:
        source = checked.spec.source
        try:
            messages = await run_in_threadpool(
                runtime.samples.newest, source.connection, source.topics
            )
            shown["trial"] = await runtime.attempts.run(
                partial(tried, checked.spec, checked.plan, messages)
            )
        except Problem as problem:
            shown["silent"] = problem.detail
    return shown


def _planned(checked: CheckedSpec) -> dict[str, Any]:
    columns, picture = _columns(checked.plan), topology(checked.spec, checked.plan, {})
    return {"checked": checked, "columns": columns, "topology": picture}


def _columns(plan: Plan) -> list[ResultColumn]:
    types = {named.name: str(named.type) for named in plan.group}
    types |= {name: str(kind) for name, kind in plan.results}
    meaning = {named.name: expression_sql(named.expression) for named in plan.group}
    meaning |= {each.name: aggregate_sql(plan, each) for each in plan.aggregates}
    meaning |= {named.name: expression_sql(named.expression, plan) for named in plan.computed}
    return [ResultColumn(name, types[name], meaning[name]) for name in plan.output]
