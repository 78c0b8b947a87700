"""The page of the live changelog: its frame only; assets/changes.js follows the stream."""

from __future__ import annotations

import logging
from typing import Annotated

import msgspec
from deltalake.exceptions import DeltaError
from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from jobs.core.explain.extreme_changes import extreme_columns
from jobs.reading.files import NoTable
from jobs.reading.history import EpochUnknown, find_complete_since
from jobs.reading.version import at_newest
from schemas.limits import CONSOLE_CHANGES_BEFORE
from schemas.table.parquet_file import TableDamaged
from schemas.types.json_types import JsonObject
from service.answers.changes import ChangePosition
from service.console.job_view import find_followed_job
from service.console.page import PageRoute, render_page
from service.console.rows import find_numeric_columns, label_key, list_group_columns
from service.console.visitor import require_visitor
from service.live.table import LiveTable
from service.routes.answering import parse_decoded_key

log = logging.getLogger(__name__)
router = APIRouter(include_in_schema=False, route_class=PageRoute)

_EPOCHS_SCANNED = 200


@router.get("/jobs/{name}/changes")
async def changes_page(
    request: Request,
    name: str,
    key: Annotated[str | None, Query(max_length=10_000, description="as in /results")] = None,
    text: str = "",
    only: str = "",
    before: str = "",
) -> Response:
    """Show the live changelog of a job or of one group; assets/changes.js has the other filters."""
    visitor = require_visitor(request)
    live_table, job = await find_followed_job(request, name)
    if job.newest is None:
        return await render_page(
            request, visitor, "results/results_none.html", job=job, tab="changes"
        )
    label = ""
    if key:
        label = label_key(live_table.shape.key(parse_decoded_key(live_table, key)))
    table = live_table.table_tag
    start = await run_in_threadpool(_find_start, live_table)
    shape = live_table.shape
    names = list_group_columns(shape)
    frame: JsonObject = {
        "columns": list(shape.names),
        "numeric": sorted(find_numeric_columns(shape)),
        "extremes": {e.column: "MAX" if e.greatest else "MIN" for e in extreme_columns(shape.plan)},
        "group": names if all(each in shape.names for each in names) else None,
    }
    return await render_page(
        request,
        visitor,
        "results/changes.html",
        job=job,
        tab="changes",
        frame=msgspec.json.encode(frame).decode(),
        columns=shape.names,
        numeric=frame["numeric"],
        key=key or "",
        label=label,
        since=ChangePosition(start, table=table),
        newest=job.newest.epoch,
        has_extremes=bool(frame["extremes"]),
    )


def _find_start(live_table: LiveTable) -> int:
    """Return an epoch before the newest few, so that a page starts with some changes."""
    statement = "SELECT epoch, changelog_rows FROM epochs ORDER BY epoch DESC LIMIT ?"
    with live_table.index.take_snapshot() as snapshot:
        newest = snapshot.query(statement, [_EPOCHS_SCANNED])
        start, rows = snapshot.epoch, 0
    for epoch, count in newest:
        rows += count
        if rows > CONSOLE_CHANGES_BEFORE:
            break
        start = min(start, max(epoch - 1, 0))
    try:
        # The history of a view that came later starts with it.
        return at_newest(live_table.paths.table, lambda table: find_complete_since(table, start))
    except EpochUnknown:  # another table has replaced it
        return start
    except (NoTable, TableDamaged, DeltaError, OSError) as error:
        log.warning("cannot read the table of job %s: %s", live_table.paths.name, error)
    return start
