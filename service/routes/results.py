"""Routes of results: one group, pages of many; now, or as they were."""

from __future__ import annotations

import re
import time
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.limits import PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX, WAIT_SECONDS_MAX
from service.access.requirements import needs
from service.access.tokens import Role
from service.answers.arrow import result_stream
from service.answers.listing import listing
from service.answers.media import Media, accepted, csv, json_page, ndjson
from service.answers.results import Page
from service.live.follower import Follower
from service.problems import Problem
from service.routes.answering import key_of, of_epoch
from service.routes.documents import Listing, Result
from service.routes.examples import NOT_MODIFIED, ROW, answers
from service.runtime import runtime_of

router = APIRouter(
    prefix="/v1/jobs/{name}", tags=["results"], dependencies=[Depends(needs(Role.VIEWER))]
)

AsOf = Annotated[
    str | None,
    Query(description="epoch:N, time:2026-01-31T12:00:00Z or watermark:MS", max_length=80),
]
MinEpoch = Annotated[
    int | None, Query(ge=0, le=2**62, description="wait until this epoch is there")
]
AfterOffset = Annotated[
    str | None,
    Query(description="PARTITION:OFFSET or TOPIC/PARTITION:OFFSET; wait until it is counted"),
]
Wait = Annotated[float, Query(ge=0, le=WAIT_SECONDS_MAX, description="seconds to wait at most")]
IfNoneMatch = Annotated[str | None, Header()]

_RECORD = re.compile(r"(?:([A-Za-z0-9._-]{1,249})/)?([0-9]{1,9}):([0-9]{1,18})", re.ASCII)
_LISTING = {"epoch": 41, "rows": [ROW], "next_cursor": None}


async def reached(
    request: Request, follower: Follower, epoch: int | None, after_offset: str | None, wait: float
) -> None:
    """Wait until an epoch, or the record at an offset, is in the index: a client reads what it
    knows to be written."""
    record = None if after_offset is None else _record(follower, after_offset)
    if not _is_there(follower, epoch, record):
        with runtime_of(request).following.waiting(request):
            await _until_there(follower, epoch, record, wait)


async def _until_there(
    follower: Follower, epoch: int | None, record: tuple[str, str, int] | None, seconds: float
) -> None:
    """Wait so long for an epoch or for the record at an offset; a Problem when it does not come."""
    deadline = time.monotonic() + seconds
    while not _is_there(follower, epoch, record):
        left = deadline - time.monotonic()
        if left <= 0 or follower.closed:
            now = None if follower.newest is None else follower.newest.epoch
            wanted = (
                f"epoch {epoch}"
                if record is None
                else "the record at offset {2} of {0}/{1}".format(*record)
            )
            detail = f"{wanted} was not reached within {seconds:g} s; the newest epoch is {now}"
            raise Problem("epoch-not-reached", 412, detail, newest=now)
        await follower.next_epoch(left)


def _is_there(follower: Follower, epoch: int | None, record: tuple[str, str, int] | None) -> bool:
    newest = follower.newest
    if epoch is not None and (newest is None or newest.epoch < epoch):
        return False
    if record is None:
        return True
    topic, partition, offset = record
    return newest is not None and newest.offsets.get(topic, {}).get(partition, 0) > offset


def _record(follower: Follower, text: str) -> tuple[str, str, int]:
    """Topic, partition and offset of PARTITION:OFFSET, or TOPIC/PARTITION:OFFSET."""
    topics = follower.spec.source.topics
    found = _RECORD.fullmatch(text)
    if (
        found is None
        or (found[1] is None and len(topics) > 1)
        or (found[1] is not None and found[1] not in topics)
    ):
        reason = f"write PARTITION:OFFSET or TOPIC/PARTITION:OFFSET, of {', '.join(topics)}"
        errors = [{"path": "query.after_offset", "message": reason}]
        raise Problem("parameter-invalid", 422, reason, errors=errors)
    return found[1] or topics[0], str(int(found[2])), int(found[3])


def unchanged(if_none_match: str | None, epoch: int) -> bool:
    if if_none_match is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return "*" in tags or f'"{epoch}"' in tags


@router.get(
    "/results",
    responses=answers(
        Listing, _LISTING, 404, 406, 409, 410, 412, 422, 429, 503,
        media={
            Media.NDJSON: '{"name": "bolt", "sum_cnt": 36120}\n',
            Media.CSV: "name,sum_cnt,top,n\r\nbolt,36120,998,71\r\n",
            Media.ARROW: None,
        },
    ) | NOT_MODIFIED,
)  # fmt: skip
async def list_results(
    request: Request,
    name: str,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)] = PAGE_ROWS_DEFAULT,
    cursor: Annotated[str | None, Query(description="next_cursor of the page before")] = None,
    order: Annotated[str | None, Query(description="as in -total,name: - descends")] = None,
    where: Annotated[
        list[str] | None, Query(description="total>=10, name^=bo, name is null; all must hold")
    ] = None,
    as_of: AsOf = None,
    min_epoch: MinEpoch = None,
    after_offset: AfterOffset = None,
    wait: Wait = 10.0,
    spreadsheet: Annotated[
        bool, Query(description="of CSV: a text that a spreadsheet would run gets an apostrophe")
    ] = False,
    accept: Annotated[str | None, Header()] = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """A page of the results, in the order of the groups or as asked. All pages of a listing are
    of the epoch of its first, whatever is committed meanwhile."""
    runtime = runtime_of(request)
    follower = await runtime.ready(name)
    media = accepted(accept, Media.JSON, Media.NDJSON, Media.CSV, Media.ARROW)
    cursor = cursor or None  # as a form sends it for the first page
    asked = listing(follower.shape, [each for each in where or [] if each], order, as_of)
    await reached(request, follower, min_epoch, after_offset, wait)
    now = follower.newest
    if now is not None and as_of is None and cursor is None and unchanged(if_none_match, now.epoch):
        return Response(status_code=304, headers=of_epoch(now.epoch))
    page = await run_in_threadpool(runtime.results.page, follower, asked, limit, as_of, cursor)
    if unchanged(if_none_match, page.epoch):
        return Response(status_code=304, headers=of_epoch(page.epoch, page.watermark))
    return await run_in_threadpool(_written, request, follower, page, media, spreadsheet)


def _written(
    request: Request, follower: Follower, page: Page, media: Media, spreadsheet: bool
) -> Response:
    headers = of_epoch(page.epoch, page.watermark, Vary="Accept")
    if page.cursor is not None:
        query = [(k, v) for k, v in request.query_params.multi_items() if k != "cursor"]
        query.append(("cursor", page.cursor))
        headers["Link"] = f'<{request.url.path}?{urlencode(query)}>; rel="next"'
    if media is Media.JSON:
        body = json_page(page.epoch, page.documents, page.cursor)
    elif media is Media.NDJSON:
        body = ndjson(page.documents)
    elif media is Media.ARROW:
        body = result_stream(follower.shape.types, page.documents)
    else:
        body = csv(follower.shape.names, page.documents, spreadsheet=spreadsheet)
    return Response(body, headers=headers, media_type=str(media))


@router.get(
    "/results/{key}",
    responses=answers(Result, {"epoch": 41, "row": ROW}, 404, 409, 410, 412, 422, 429)
    | NOT_MODIFIED,
)
async def get_result(
    request: Request,
    name: str,
    key: str,
    as_of: AsOf = None,
    min_epoch: MinEpoch = None,
    after_offset: AfterOffset = None,
    wait: Wait = 10.0,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """One group. Its key is percent-encoded: the value of its column, or a JSON object of its
    columns where it is NULL, has several, or begins with `{`."""
    runtime = runtime_of(request)
    follower = await runtime.ready(name)
    group = key_of(follower, key)
    await reached(request, follower, min_epoch, after_offset, wait)
    watermark: int | None = None
    if as_of is None:  # one look at a B-tree: not worth another thread
        epoch, document = follower.index.lookup(follower.shape.key_bytes(group))
        newest = follower.newest
        watermark = None if newest is None else newest.watermarks.get("combined")
    else:
        epoch, watermark, document = await run_in_threadpool(
            runtime.results.group, follower, follower.shape.key_bytes(group), as_of
        )
    if document is None:
        detail = f"there is no such group at epoch {epoch}"
        raise Problem("group-unknown", 404, detail, epoch=epoch, headers={"X-Epoch": str(epoch)})
    headers = of_epoch(epoch, watermark)
    if unchanged(if_none_match, epoch):
        return Response(status_code=304, headers=headers)
    body = b'{"epoch":%d,"row":%b}' % (epoch, document)
    return Response(body, headers=headers, media_type="application/json")
