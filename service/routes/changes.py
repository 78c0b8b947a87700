"""Routes of changes: a stream that goes on, or what is there as one answer."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from schemas.limits import PAGE_ROWS_MAX, WAIT_SECONDS_MAX
from service.access.requirements import needs
from service.access.tokens import Role
from service.answers.arrow import change_stream
from service.answers.changes import Place, check_place, newest_place, next_epochs, place
from service.answers.event_stream import Events, EventStream, Lines
from service.answers.media import Media, accepted
from service.live.follower import Follower
from service.live.recent_changes import EpochChanges
from service.problems import Problem
from service.routes.documents import ChangePage
from service.routes.examples import ROW, answers
from service.runtime import runtime_of

router = APIRouter(
    prefix="/v1/jobs/{name}", tags=["changes"], dependencies=[Depends(needs(Role.VIEWER))]
)

_CHANGE = {"op": "+U", "epoch": 41, "seq": 12884901889, "row": ROW}
_PAGE = {
    "changes": [_CHANGE],
    "next": "41:9007199254740991",
    "complete": True,
    "epoch": 41,
    "watermark": 1769860799999,
}
_NO_STORE = {"Cache-Control": "no-store"}
_STREAM = (
    'event: change\nid: 41:12884901889\ndata: {"op":"+U","epoch":41,"seq":12884901889,"row":{}}\n\n'
    'event: progress\nid: 41:9007199254740991\ndata: {"epoch":41,"watermark":1769860799999}\n\n'
)


class _Streaming(Response):
    """An event stream as FastAPI wants an answer."""

    def __init__(self, stream: EventStream, request: Request) -> None:
        super().__init__()
        self._stream = stream
        self._request = request
        self._following = runtime_of(request).following
        self._following.begin(request)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._stream(scope, receive, send)
        finally:
            self._following.end(self._request)


@router.get(
    "/changes",
    responses=answers(
        ChangePage, _PAGE, 404, 406, 409, 410, 422, 429,
        media={Media.EVENTS: _STREAM, Media.NDJSON: "{}\n", Media.ARROW: None},
    ),
)  # fmt: skip
async def changes(
    request: Request,
    name: str,
    since: Annotated[
        str | None, Query(description="EPOCH or EPOCH:SEQ; only what comes after it")
    ] = None,
    snapshot: Annotated[bool, Query(description="begin with the results as they are")] = False,
    key: Annotated[str | None, Query(description="only this group, named as in /results")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX, description="of a JSON answer")] = 1_000,
    wait: Annotated[
        float, Query(ge=0, le=WAIT_SECONDS_MAX, description="of a JSON answer without changes")
    ] = 0.0,
    ticket: Annotated[str | None, Query(description="of POST /v1/tickets, for EventSource")] = None,
    accept: Annotated[str | None, Header()] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """The changelog from a place on: without `since` and snapshot, from now on. Server-sent
    events (or JSON lines) that go on; with `Accept: application/json` what is there, or what comes
    within `wait`."""
    runtime = runtime_of(request)
    follower = await runtime.ready(name)
    media = accepted(accept, Media.EVENTS, Media.JSON, Media.NDJSON, Media.ARROW)
    group = None
    if key is not None:
        group = follower.shape.key_bytes(follower.shape.parse_key(key))
    at: Place | None = None
    if last_event_id:  # a browser that comes back: where it was, whatever its address says
        at = place(last_event_id, "header.last-event-id")
    elif since is not None:
        at = place(since, "query.since")
    elif not snapshot:
        at = newest_place(follower)
    if at is not None:
        await run_in_threadpool(check_place, follower, at)
    else:
        newest_place(follower)  # there is something to take a snapshot of
    if media not in (Media.JSON, Media.ARROW):
        form = Events if media is Media.EVENTS else Lines
        stream = EventStream(follower, at, group, runtime.results, form)
        return _Streaming(stream, request)
    if at is None:
        detail = "a snapshot comes as a stream; read /results, and go on from its epoch with since"
        raise Problem("accept-unsupported", 406, detail)
    if wait:
        with runtime.following.waiting(request):
            return await _page(follower, at, group, limit, wait, media)
    return await _page(follower, at, group, limit, wait, media)


async def _page(
    follower: Follower, at: Place, key: bytes | None, limit: int, wait: float, media: Media
) -> Response:
    """Whole epochs, as many as the limit takes; of one that is longer its next rows."""
    deadline = time.monotonic() + wait
    documents: list[bytes] = []
    complete = True
    last: EpochChanges | None = None
    while True:
        share = follower.stood.share()
        for epoch in await run_in_threadpool(next_epochs, follower, at):
            rows = list(epoch.after(at.seq if at.epoch == epoch.epoch else -1, key))
            if len(documents) + len(rows) > limit and documents:
                break
            last = epoch
            documents += [row.document for row in rows[:limit]]
            complete = len(rows) <= limit
            at = Place(epoch.epoch) if complete else Place(epoch.epoch, rows[limit - 1].seq)
            if len(documents) >= limit:
                break
        left = deadline - time.monotonic()
        if documents or left <= 0 or follower.closed:
            break
        await follower.next_epoch(left, share)
    if media is Media.ARROW:
        body = await run_in_threadpool(change_stream, follower.shape.types, documents)
        headers = {"X-Next": str(at), "X-Complete": str(complete).lower(), "X-Epoch": str(at.epoch)}
        return Response(body, media_type=str(media), headers={**headers, **_NO_STORE})
    newest = follower.newest
    told = {
        "next": str(at),
        "complete": complete,
        "epoch": at.epoch,
        "watermark": None if last is None else last.watermark,
        "newest": None if newest is None else newest.epoch,
    }
    body = b'{"changes":[%b],%b' % (b",".join(documents), msgspec.json.encode(told)[1:])
    return Response(body, media_type=str(Media.JSON), headers=_NO_STORE)
