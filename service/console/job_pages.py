"""The jobs, and one job: how they are, how they came there, what can be done."""

from __future__ import annotations

from contextlib import suppress

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.console.job_view import job_view, view_of
from service.console.page import PageRoute, page
from service.console.visitor import visitor_of
from service.problems import Problem
from service.runtime import runtime_of

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/")
async def jobs_page(request: Request) -> Response:
    """All jobs."""
    visitor = visitor_of(request)
    runtime = runtime_of(request)
    jobs = [view_of(runtime, record) for record in runtime.jobs.records()]
    return await page(request, visitor, "jobs.html", jobs=jobs)


@router.get("/jobs/{name}")
async def job_page(request: Request, name: str) -> Response:
    """One job."""
    visitor = visitor_of(request)
    runtime = runtime_of(request)
    runtime.jobs.record(name)
    with suppress(Problem):  # a job without results has a page all the same
        await runtime.ready(name)
    return await page(request, visitor, "job.html", job=job_view(request, name), tab="overview")
