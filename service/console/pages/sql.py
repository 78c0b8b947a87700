"""The page of SQL over results: a statement, its answer, and the tables that it may read."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.limits import CONSOLE_SQL_ROWS
from schemas.types.json_types import JsonObject
from service.console.job_view import view_job
from service.console.page import PageRoute, render_page
from service.console.visitor import require_visitor
from service.runtime import Runtime, runtime_of, view_name

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/sql")
async def sql_page(request: Request) -> Response:
    """Show the statement's form; assets/sql.js sends it to `POST /v1/sql`."""
    visitor = require_visitor(request)
    tables = await run_in_threadpool(_list_tables, runtime_of(request))
    return await render_page(request, visitor, "sql.html", tables=tables, rows_max=CONSOLE_SQL_ROWS)


def _list_tables(runtime: Runtime) -> list[JsonObject]:
    """Return each job or view that has results, with the columns of its table."""
    views = [
        view_job(runtime, record, view)
        for record in runtime.jobs.list_records()
        for view in runtime.jobs.parse_spec(record).view_specs
    ]
    return [
        {
            "name": view_name(view.name, view.view),
            "epoch": view.newest.epoch,
            "columns": {name: str(kind) for name, kind in view.live_table.shape.types.items()},
        }
        for view in views
        if view.live_table is not None and view.newest is not None
    ]
