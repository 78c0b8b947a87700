"""Routes of changes: an endless stream, or one page of them."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

import msgspec
from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from schemas import limits
from schemas.documents.answers import ChangePage
from service.access.requirements import VIEWER
from service.answers.arrow import encode_changes
from service.answers.changes import (
    ChangePosition,
    check_position,
    find_newest_position,
    parse_position,
    read_epochs,
)
from service.answers.event_stream import Events, EventStream, Lines
from service.answers.media import Media, choose_media
from service.answers.results import TableReads, TableReadsBusy
from service.live.recent_changes import END_OF_EPOCH, EpochChanges
from service.live.table import LiveTable
from service.problems import Problem
from service.routes.answering import parse_decoded_key
from service.routes.examples import describe_responses
from service.routes.views import open_view
from service.runtime import runtime_of

router = APIRouter(prefix="/v1/jobs/{name}", tags=["changes"], dependencies=[VIEWER])

_NO_STORE = {"Cache-Control": "no-store"}
_STREAM = (
    'event: change\nid: 41:12884901889\ndata: {"op":"+I","epoch":41,"row":{}}\n\n'
    'event: progress\nid: 41:9007199254740991:5f0c2e71\ndata: {"epoch":41,"watermark":1769}\n\n'
)


class _Streaming(Response):
    """An event stream as a response; it holds a stream slot."""

    def __init__(self, stream: EventStream, request: Request) -> None:
        super().__init__()
        self._stream = stream
        self._request = request
        self._slots = runtime_of(request).stream_slots
        self._slots.acquire(request)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._stream(scope, receive, send)
        finally:
            self._slots.release(self._request)


_MEDIA: dict[str, str | None] = {Media.EVENTS: _STREAM, Media.NDJSON: "{}\n", Media.ARROW: None}


@router.get(
    "/changes", responses=describe_responses(ChangePage, 404, 406, 409, 410, 422, 429, media=_MEDIA)
)
async def read_changes(
    request: Request,
    name: str,
    since: Annotated[
        str | None,
        Query(description="EPOCH, EPOCH:SEQ or an id of an event; return only later changes"),
    ] = None,
    snapshot: Annotated[bool, Query(description="start with the current results")] = False,
    key: Annotated[str | None, Query(description="only this group; a key as in /results")] = None,
    limit: Annotated[
        int, Query(ge=1, le=limits.PAGE_ROWS_MAX, description="changes in a JSON response")
    ] = 1_000,
    wait: Annotated[
        float,
        Query(ge=0, le=limits.WAIT_SECONDS_MAX, description="seconds to wait for changes, in JSON"),
    ] = 0.0,
    ticket: Annotated[
        str | None, Query(description="from POST /v1/tickets, for EventSource")
    ] = None,
    accept: Annotated[str | None, Header()] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """Return the changes after a position; by default those after the newest epoch.

    The response is an endless stream of server-sent events or JSON lines. With
    `Accept: application/json`, it is one page of changes, after waiting up to `wait` for some.
    """
    runtime = runtime_of(request)
    live_table = await open_view(request, name)
    media = choose_media(accept, Media.EVENTS, Media.JSON, Media.NDJSON, Media.ARROW)
    group = None
    if key is not None:
        group = live_table.shape.key_bytes(parse_decoded_key(live_table, key))
    at: ChangePosition | None = None
    if last_event_id:  # a reconnecting browser: its position precedes its address
        at = parse_position(last_event_id, "header.last-event-id", live_table, since)
    elif since is not None:
        at = parse_position(since, "query.since", live_table)
    elif not snapshot:
        at = find_newest_position(live_table)
    is_stream = media not in (Media.JSON, Media.ARROW)
    if at is not None:
        seconds = limits.SETTLE_SECONDS_MAX if is_stream else 0.0
        await _check_start(live_table, at, runtime.table_reads, seconds)
    else:
        find_newest_position(live_table)  # raises a Problem without an epoch
    if is_stream:
        form = Events if media is Media.EVENTS else Lines
        stream = EventStream(
            live_table, at, group, runtime.results, form, runtime.access.make_admission(request)
        )
        return _Streaming(stream, request)
    if at is None:
        detail = "a snapshot needs a stream; read /results instead, then use since with its epoch"
        raise Problem("accept-unsupported", detail)
    if wait:
        with runtime.stream_slots.hold(request):
            return await _read_page(runtime.table_reads, live_table, at, group, limit, wait, media)
    return await _read_page(runtime.table_reads, live_table, at, group, limit, wait, media)


async def _check_start(
    live_table: LiveTable, at: ChangePosition, reads: TableReads, seconds_max: float
) -> None:
    """Raise a Problem if changes cannot start at a position.

    While too many others read tables, it waits for its turn, at most for `seconds_max`: after a
    restart of the service all streams come back at once, and EventSource gives up at a 429.
    """
    deadline = time.monotonic() + seconds_max
    while True:
        try:
            await run_in_threadpool(check_position, live_table, at, reads)
            return
        except TableReadsBusy:
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(limits.TABLE_READ_RETRY_SECONDS)


async def _read_page(
    reads: TableReads,
    live_table: LiveTable,
    at: ChangePosition,
    key: bytes | None,
    limit: int,
    wait: float,
    media: Media,
) -> Response:
    """Return whole epochs within the limit; of a longer epoch, its next rows."""
    deadline = time.monotonic() + wait
    documents: list[bytes] = []
    complete = True
    last: EpochChanges | None = None
    while True:
        share = live_table.new_epochs.share()
        for epoch in await run_in_threadpool(read_epochs, live_table, at, reads):
            rows = list(epoch.iterate_after(at.seq if at.epoch == epoch.epoch else -1, key))
            if len(documents) + len(rows) > limit and documents:
                break
            last = epoch
            documents += [row.document for row in rows[:limit]]
            complete = len(rows) <= limit
            seq = END_OF_EPOCH if complete else rows[limit - 1].seq
            at = ChangePosition(epoch.epoch, seq, epoch.table)
            if len(documents) >= limit:
                break
        left = deadline - time.monotonic()
        if documents or left <= 0 or live_table.closed:
            break
        await live_table.wait_for_epoch(left, share)
    if media is Media.ARROW:
        body = await run_in_threadpool(encode_changes, live_table.shape.types, documents)
        headers = {"X-Next": str(at), "X-Complete": str(complete).lower(), "X-Epoch": str(at.epoch)}
        return Response(body, media_type=str(media), headers={**headers, **_NO_STORE})
    newest = live_table.newest
    position = {
        "next": str(at),
        "complete": complete,
        "epoch": at.epoch,
        "watermark": None if last is None else last.watermark,
        "newest": None if newest is None else newest.epoch,
    }
    body = b'{"changes":[%b],%b' % (b",".join(documents), msgspec.json.encode(position)[1:])
    return Response(body, media_type=str(Media.JSON), headers=_NO_STORE)
