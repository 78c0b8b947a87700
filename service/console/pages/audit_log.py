"""The audit log as a page: who requested which change, and the status of the response."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.limits import CONSOLE_AUDIT_LOG_LINES
from service.access.tokens import Role
from service.console.page import PageRoute, redirect_to, render_page
from service.console.visitor import require_visitor
from service.runtime import runtime_of

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/audit-log")
async def audit_log_page(request: Request) -> Response:
    """Show the newest lines."""
    visitor = require_visitor(request, Role.ADMIN)
    audit_log = runtime_of(request).audit_log
    lines = await run_in_threadpool(audit_log.newest, CONSOLE_AUDIT_LOG_LINES)
    return await render_page(request, visitor, "audit_log.html", lines=lines)


@router.get("/trail")
async def old_audit_log_page(request: Request) -> Response:
    """Redirect bookmarks of the page's old address."""
    require_visitor(request, Role.ADMIN)
    return redirect_to("/audit-log")
