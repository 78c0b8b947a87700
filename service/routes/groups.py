"""Routes of details: explain, history, differences of epochs, quarantine."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from jobs.reading.group import GroupReader
from jobs.reading.quarantine import list_messages, read_message
from jobs.reading.version import TableVersion
from schemas.directory.quarantine import Quarantined
from schemas.documents.answers import Difference, History, Quarantine
from schemas.documents.explanation import Explained
from schemas.limits import PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX
from service.access.requirements import VIEWER
from service.answers.difference import read_difference_page
from service.routes.answering import answer, make_epoch_headers, parse_key, parse_message
from service.routes.examples import describe_responses
from service.routes.views import open_view
from service.runtime import runtime_of

router = APIRouter(prefix="/v1/jobs/{name}", dependencies=[VIEWER])


@router.get(
    "/results/{key}/explain",
    tags=["results"],
    responses=describe_responses(Explained, 404, 409, 422, 429),
)
async def explain_result(request: Request, name: str, key: str) -> Response:
    """Explain the values of a group: sums, multisets, epochs and source offsets."""
    runtime = runtime_of(request)
    live_table = await open_view(request, name)
    group = parse_key(live_table, key)

    def read(table: TableVersion) -> Explained:
        buckets, paths = live_table.spec.state.buckets, live_table.paths
        reader = GroupReader(table, live_table.shape, group, buckets, paths=paths)
        return reader.explain(name)

    explained = await runtime.read_table(live_table, read)
    return answer(explained, headers=make_epoch_headers(live_table.table_tag, explained.epoch))


@router.get(
    "/results/{key}/history",
    tags=["results"],
    responses=describe_responses(History, 404, 409, 422, 429),
)
async def get_history(
    request: Request,
    name: str,
    key: str,
    limit: Annotated[
        int, Query(ge=1, le=PAGE_ROWS_MAX, description="number of newest changes")
    ] = 1_000,
) -> Response:
    """Return the changes of one group, oldest first."""
    runtime = runtime_of(request)
    live_table = await open_view(request, name)
    group = parse_key(live_table, key)

    def read(table: TableVersion) -> History:
        reader = GroupReader(table, live_table.shape, group, live_table.spec.state.buckets)
        changes = reader.changes(limit + 1)
        rows = table.epochs()
        complete = len(changes) <= limit and reader.complete(rows)
        return History(rows[-1].epoch, live_table.shape.key(group), changes[-limit:], complete)

    found = await runtime.read_table(live_table, read)
    return answer(found, headers=make_epoch_headers(live_table.table_tag, found.epoch))


@router.get(
    "/diff", tags=["results"], responses=describe_responses(Difference, 404, 409, 410, 422, 429)
)
async def get_difference(
    request: Request,
    name: str,
    first: Annotated[int, Query(alias="from", ge=0, le=2**62)],
    last: Annotated[int | None, Query(alias="to", ge=0, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)] = PAGE_ROWS_DEFAULT,
    cursor: Annotated[str | None, Query(description="next_cursor of the previous page")] = None,
) -> Response:
    """Return the groups whose results differ between two epochs, with both rows."""
    runtime = runtime_of(request)
    live_table = await open_view(request, name)

    def read(table: TableVersion) -> Difference:
        return read_difference_page(table, live_table.shape, name, first, last, limit, cursor)

    document = await runtime.read_table(live_table, read)
    return answer(document)


@router.get(
    "/quarantine", tags=["quarantine"], responses=describe_responses(Quarantine, 404, 409, 422, 429)
)
async def list_quarantine(
    request: Request,
    name: str,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    cursor: Annotated[str | None, Query(description="next_cursor of the previous page")] = None,
) -> Response:
    """Return the quarantined messages, oldest first, with reason and first bytes."""
    runtime = runtime_of(request)
    live_table = await open_view(request, name)
    after = parse_message(cursor) if cursor else None
    found = await runtime.read_table(
        live_table, lambda table: list_messages(table, after, limit + 1)
    )
    more = found[limit - 1].id if len(found) > limit else None
    shown = [each.with_replay(live_table.paths.replayed) for each in found[:limit]]
    return answer(Quarantine(shown, more))


@router.get(
    "/quarantine/{id}",
    tags=["quarantine"],
    responses=describe_responses(Quarantined, 404, 409, 429),
)
async def get_quarantine(request: Request, name: str, id: str) -> Response:
    """Return one quarantined message with all of its stored bytes."""
    runtime = runtime_of(request)
    live_table = await open_view(request, name)
    position = parse_message(id)
    found = await runtime.read_table(live_table, lambda table: read_message(table, position))
    return answer(found.with_replay(live_table.paths.replayed))
