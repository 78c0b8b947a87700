"""The trail: who has asked for which change, and what the answer was."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.limits import CONSOLE_TRAIL_LINES
from service.access.tokens import Role
from service.console.page import PageRoute, page
from service.console.visitor import visitor_of
from service.runtime import runtime_of

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/trail")
async def trail_page(request: Request) -> Response:
    visitor = visitor_of(request, Role.ADMIN)
    lines = await run_in_threadpool(runtime_of(request).trail.newest, CONSOLE_TRAIL_LINES)
    return await page(request, visitor, "trail.html", lines=lines)
