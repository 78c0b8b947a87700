"""The changelog of a job as it grows: the page's frame; assets/changes.js follows the stream."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from jobs.core.explain.extreme_changes import extremes
from schemas.limits import CONSOLE_CHANGES_BEFORE
from service.console.job_view import followed_job
from service.console.page import PageRoute, page
from service.console.rows import group_names, key_label, numeric_columns
from service.console.visitor import visitor_of
from service.live.follower import Follower

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_EPOCHS_BEFORE = 200


@router.get("/jobs/{name}/changes")
async def changes_page(
    request: Request,
    name: str,
    key: Annotated[str | None, Query(max_length=10_000, description="as in /results")] = None,
) -> Response:
    """The changelog, live."""
    visitor = visitor_of(request)
    follower, job = await followed_job(request, name)
    if job.newest is None:
        return await page(request, visitor, "results_none.html", job=job, tab="changes")
    label = ""
    if key:
        label = key_label(follower.shape.key(follower.shape.parse_key(key)))
    begin = await run_in_threadpool(_begin, follower)
    shape = follower.shape
    names = group_names(shape)
    frame: dict[str, Any] = {
        "columns": list(shape.names),
        "numeric": sorted(numeric_columns(shape)),
        "extremes": {e.column: "MAX" if e.greatest else "MIN" for e in extremes(shape.plan)},
        "group": names if all(each in shape.names for each in names) else None,
    }
    return await page(
        request, visitor, "changes.html",
        job=job, tab="changes", frame=msgspec.json.encode(frame).decode(),
        columns=shape.names, numeric=frame["numeric"], key=key or "", label=label, since=begin,
        newest=job.newest.epoch,
        has_extremes=bool(frame["extremes"]),
    )  # fmt: skip


def _begin(follower: Follower) -> int:
    """An epoch before the newest few, so that a page begins with something to look at."""
    statement = "SELECT epoch, changelog_rows FROM epochs ORDER BY epoch DESC LIMIT ?"
    with follower.index.reading() as reading:
        newest = reading.rows(statement, [_EPOCHS_BEFORE])
        begin, rows = reading.epoch, 0
    for epoch, count in newest:
        rows += count
        if rows > CONSOLE_CHANGES_BEFORE:
            break
        begin = min(begin, max(epoch - 1, 0))
    return begin
