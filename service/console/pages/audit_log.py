"""The audit log as a page: who requested which change, and the status of the response."""

from __future__ import annotations

from collections.abc import Container
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.limits import CONSOLE_AUDIT_LOG_LINES
from service.access.tokens import Role
from service.console.page import PageRoute, render_page
from service.console.visitor import require_visitor
from service.runtime import runtime_of

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/audit-log")
async def audit_log_page(
    request: Request, job: Annotated[str, Query(max_length=100)] = ""
) -> Response:
    """Show the newest lines, of one job if it is given."""
    visitor = require_visitor(request, Role.ADMIN)
    runtime = runtime_of(request)
    lines = await run_in_threadpool(runtime.audit_log.newest, CONSOLE_AUDIT_LOG_LINES, job.strip())
    jobs = [each.name for each in runtime.jobs.list_records()]
    return await render_page(
        request,
        visitor,
        "audit_log.html",
        lines=[(each, _find_job(each.path, jobs)) for each in lines],
        job=job.strip(),
        jobs=jobs,
    )


def _find_job(path: str, jobs: Container[str]) -> str | None:
    """Return the job of a request's path, if it is still there."""
    parts = path.split("/")
    job = parts[3].partition(".")[0] if len(parts) > 3 else ""  # JOB.VIEW is a view
    return job if parts[:3] == ["", "v1", "jobs"] and job in jobs else None
