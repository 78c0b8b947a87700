"""Routes of the views of a job: their list, and one of them as a job.

    /v1/jobs/items/views/top/results  ──gate──►  the route of results, for the job `items.top`

The gate rewrites the address, so that each route that reads a job reads a view too.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.documents.answers import View, Views
from schemas.spec.job import JobSpec
from service.access.requirements import VIEWER
from service.answers.listing import parse_listing
from service.answers.results import ResultPage
from service.live.results_index import make_refilling_problem
from service.live.table import LiveTable
from service.problems import Problem
from service.routes.answering import answer
from service.routes.examples import describe_responses
from service.runtime import Runtime, runtime_of, view_name
from service.supervision.register import JobRecord

router = APIRouter(prefix="/v1/jobs/{name}", tags=["views"], dependencies=[VIEWER])


@router.get("/views", responses=describe_responses(Views, 404))
async def list_views(request: Request, name: str) -> Response:
    """Return the views of a job, with how far each is; a job with one query has none."""
    runtime = runtime_of(request)
    spec = runtime.jobs.parse_spec(runtime.jobs.find_record(name))
    return answer(Views(await run_in_threadpool(_describe_views, runtime, name, spec)))


def _describe_views(runtime: Runtime, name: str, spec: JobSpec) -> list[View]:
    found = []
    live_tables = runtime.find_views(name)
    for view, own in spec.view_specs.items():
        if view and view in live_tables:  # `evolve` drops a view before the spec of the job does
            live_table = live_tables[view]
            newest = live_table.newest
            columns = list(live_table.shape.plan.output)
            sink = None if own.sink is None else own.sink.topic
            epoch = None if newest is None else newest.epoch
            groups = None if newest is None else newest.counts.groups
            found.append(View(view, own.query, columns, sink, epoch, groups))
    return found


def find_view_record(runtime: Runtime, name: str) -> JobRecord:
    """Return the record of a job; for `job.view`, with the spec of this view."""
    job, _, view = name.partition(".")
    record = runtime.jobs.find_record(job)
    if not view:
        return record
    spec = runtime.jobs.parse_spec(record).view_specs.get(view)
    if spec is None:
        raise Problem("job-unknown", f"job {job[:80]!r} has no view {view[:80]!r}")
    document = msgspec.json.encode(spec.document()).decode()
    return msgspec.structs.replace(record, name=name, spec=document, pending=None)


async def open_view(request: Request, name: str) -> LiveTable:
    """Return the live table of a job or view once it has read it; a Problem if a view is to be
    named, as the job has only views.
    """
    live_table = runtime_of(request).find_live_table(name)
    if live_table.paths.view and "." not in name:
        detail = (
            f"job {name!r} has no query of its own; read one of its views, such as "
            f"/v1/jobs/{name}/views/{live_table.paths.view}/results, or several with ?views="
        )
        raise Problem("view-required", detail)
    return await runtime_of(request).wait_until_ready(name)


def require_whole_job(name: str, what: str) -> None:
    """Raise a Problem if `name` is that of a view; `what` is the part of a job's address."""
    job, _, view = name.partition(".")
    if view:
        detail = f"the views of a job have this together; use /v1/jobs/{job}/{what}"
        raise Problem("job-unknown", detail)


async def find_live_tables(request: Request, name: str, views: str) -> dict[str, LiveTable]:
    """Return the live table of each of these views of a job, once it has read the table."""
    found: dict[str, LiveTable] = {}
    for view in views.split(","):
        found[view] = await open_view(request, view_name(name, view))
    return found


def read_views(
    runtime: Runtime, live_tables: Mapping[str, LiveTable], limit: int, as_of: str | None
) -> dict[str, ResultPage]:
    """Return the first page of each view, all at one epoch.

    The cursor of a page is that of a listing of its view with the same `as_of`.
    """
    newest = [each.newest.epoch for each in live_tables.values() if each.newest is not None]
    at = as_of
    if at is None and len(newest) == len(live_tables):
        at = f"epoch:{min(newest)}"
    pages: dict[str, ResultPage] = {}
    for view, live_table in live_tables.items():
        asked = parse_listing(live_table, [], None, as_of)
        pages[view] = runtime.results.read_page(live_table, asked, limit, at, None)
        at = f"epoch:{pages[view].epoch}"
    if len({page.table_tag for page in pages.values()}) > 1:  # one has read the next table already
        raise make_refilling_problem()
    return pages
