"""The page of a group: its value, its history, and the reasons of its extreme changes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from service.console.explanations.group_view import GroupView
from service.console.job_view import find_followed_job
from service.console.page import PageRoute, render_page
from service.console.rows import encode_key, label_key
from service.console.visitor import require_visitor
from service.routes.answering import parse_key
from service.runtime import runtime_of

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/jobs/{name}/results/{key}")
async def group_page(
    request: Request,
    name: str,
    key: str,
    epoch: Annotated[int | None, Query(ge=0, le=2**62)] = None,
) -> Response:
    """Show one group of a job; `epoch` is highlighted."""
    visitor = require_visitor(request)
    runtime = runtime_of(request)
    live_table, job = await find_followed_job(request, name)
    group = parse_key(live_table, key)
    snapshot = await run_in_threadpool(runtime.group_snapshots.read, live_table, group)
    view = GroupView(live_table.shape, snapshot, epoch)
    named = live_table.shape.key(group)
    return await render_page(
        request,
        visitor,
        "results/group.html",
        job=job,
        tab="results",
        view=view,
        document=snapshot.document,
        label=label_key(named),
        part=encode_key(named),
        highlighted=epoch,
    )
