"""Routes of results: one group, or pages of all; current or past."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Annotated
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.documents.answers import Listings, Result
from schemas.limits import PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX, WAIT_SECONDS_MAX
from service.access.requirements import VIEWER
from service.answers.arrow import encode_results
from service.answers.listing import parse_listing
from service.answers.media import Media, choose_media, encode_csv, encode_ndjson, encode_page
from service.answers.results import ResultPage
from service.live.table import LiveTable
from service.problems import Problem, make_parameter_problem
from service.routes.answering import make_epoch_headers, parse_key
from service.routes.examples import NOT_MODIFIED, describe_responses
from service.routes.views import find_live_tables, open_view, read_views
from service.runtime import runtime_of

router = APIRouter(prefix="/v1/jobs/{name}", tags=["results"], dependencies=[VIEWER])

AsOf = Annotated[
    str | None,
    Query(description="epoch:N, time:2026-01-31T12:00:00Z or watermark:MS", max_length=80),
]
MinEpoch = Annotated[
    int | None, Query(ge=0, le=2**62, description="wait until the results include this epoch")
]
AfterOffset = Annotated[
    str | None,
    Query(
        description="PARTITION:OFFSET or TOPIC/PARTITION:OFFSET; wait until the results include it"
    ),
]
Wait = Annotated[float, Query(ge=0, le=WAIT_SECONDS_MAX, description="maximum seconds to wait")]
IfNoneMatch = Annotated[str | None, Header()]

_RECORD = re.compile(r"(?:(.{1,500})/)?([0-9]{1,9}):([0-9]{1,18})", re.ASCII)


async def wait_for_data(
    request: Request,
    live_tables: Sequence[LiveTable],
    epoch: int | None,
    after_offset: str | None,
    wait: float,
) -> None:
    """Wait until all indexes include an epoch or a record, so a client reads its own writes.

    The live tables are those of one job or of its views.
    """
    record = None if after_offset is None else _parse_record(live_tables[0], after_offset)
    behind = [each for each in live_tables if not _includes(each, epoch, record)]
    if behind:
        deadline = time.monotonic() + wait
        with runtime_of(request).stream_slots.hold(request):
            for live_table in behind:
                await _wait_until_included(live_table, epoch, record, wait, deadline)


async def _wait_until_included(
    live_table: LiveTable,
    epoch: int | None,
    record: tuple[str, str, int] | None,
    seconds: float,
    deadline: float,
) -> None:
    """Wait for an epoch or for the record at an offset; raise a Problem after `seconds`."""
    while not _includes(live_table, epoch, record):
        left = deadline - time.monotonic()
        if left <= 0 or live_table.closed:
            now = None if live_table.newest is None else live_table.newest.epoch
            wanted = (
                f"epoch {epoch}"
                if record is None
                else "the record at offset {2} of {0}/{1}".format(*record)
            )
            newest = "there is no epoch yet" if now is None else f"the newest epoch is {now}"
            detail = f"{wanted} was not reached within {seconds:g} s; {newest}"
            raise Problem("epoch-not-reached", detail, newest=now)
        await live_table.wait_for_epoch(left)


def _includes(
    live_table: LiveTable, epoch: int | None, record: tuple[str, str, int] | None
) -> bool:
    newest = live_table.newest
    if epoch is not None and (newest is None or newest.epoch < epoch):
        return False
    if record is None:
        return True
    topic, partition, offset = record
    return newest is not None and newest.offsets.get(topic, {}).get(partition, 0) > offset


def _parse_record(live_table: LiveTable, text: str) -> tuple[str, str, int]:
    """Parse PARTITION:OFFSET or TOPIC/PARTITION:OFFSET."""
    topics = live_table.spec.topics
    found = _RECORD.fullmatch(text)
    if (
        found is None
        or (found[1] is None and len(topics) > 1)
        or (found[1] is not None and found[1] not in topics)
    ):
        reason = f"write PARTITION:OFFSET or TOPIC/PARTITION:OFFSET, of {', '.join(topics)}"
        raise make_parameter_problem("query.after_offset", reason)
    return found[1] or topics[0], str(int(found[2])), int(found[3])


def is_unchanged(if_none_match: str | None, headers: Mapping[str, str]) -> bool:
    """Return whether the client has what the response with these headers has."""
    if if_none_match is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return "*" in tags or headers["ETag"].removeprefix("W/") in tags


_MEDIA: dict[str, str | None] = {
    Media.NDJSON: '{"name": "bolt", "sum_cnt": 36120}\n',
    Media.CSV: "name,sum_cnt,top,n\r\nbolt,36120,998,71\r\n",
    Media.ARROW: None,
}
_STATUSES = (404, 406, 409, 410, 412, 422, 429, 503)


@router.get(
    "/results", responses=describe_responses(Listings, *_STATUSES, media=_MEDIA) | NOT_MODIFIED
)
async def list_results(
    request: Request,
    name: str,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)] = PAGE_ROWS_DEFAULT,
    cursor: Annotated[str | None, Query(description="next_cursor of the previous page")] = None,
    order: Annotated[str | None, Query(description="such as -total,name; - is descending")] = None,
    where: Annotated[
        list[str] | None,
        Query(description="such as total>=10, name^=bo, name is null; all must match"),
    ] = None,
    as_of: AsOf = None,
    min_epoch: MinEpoch = None,
    after_offset: AfterOffset = None,
    wait: Wait = 10.0,
    views: Annotated[
        str | None,
        Query(description="such as top,by-name: the first page of these views, at one epoch"),
    ] = None,
    spreadsheet: Annotated[
        bool, Query(description="CSV only: prefix texts that a spreadsheet would execute")
    ] = False,
    accept: Annotated[str | None, Header()] = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Return a page of the results, ordered by group or by `order`.

    All pages of a listing show the epoch of its first page, whatever is committed meanwhile.
    """
    runtime = runtime_of(request)
    if views is not None:
        _refuse_with_views(
            where=any(where or []), order=order, cursor=cursor, spreadsheet=spreadsheet
        )
        choose_media(accept, Media.JSON)
        live_tables = await find_live_tables(request, name, views)
        await wait_for_data(request, [*live_tables.values()], min_epoch, after_offset, wait)
        pages = await run_in_threadpool(read_views, runtime, live_tables, limit, as_of)
        return _answer_views(pages, if_none_match)
    live_table = await open_view(request, name)
    media = choose_media(accept, Media.JSON, Media.NDJSON, Media.CSV, Media.ARROW)
    cursor = cursor or None  # a form sends an empty one for the first page
    asked = parse_listing(live_table, [each for each in where or [] if each], order, as_of)
    await wait_for_data(request, [live_table], min_epoch, after_offset, wait)
    now = live_table.newest
    if now is not None and as_of is None and cursor is None:
        headers = make_epoch_headers(live_table.table_tag, now.epoch)
        if is_unchanged(if_none_match, headers):
            return Response(status_code=304, headers=headers)
    page = await run_in_threadpool(
        runtime.results.read_page, live_table, asked, limit, as_of, cursor
    )
    headers = make_epoch_headers(page.table_tag, page.epoch, page.watermark)
    if is_unchanged(if_none_match, headers):
        return Response(status_code=304, headers=headers)
    return await run_in_threadpool(_encode, request, live_table, page, media, spreadsheet)


def _refuse_with_views(**parameters: object) -> None:
    """Raise a Problem if a parameter is given that applies to a listing of one view only."""
    if given := [name for name, value in parameters.items() if value]:
        reason = "excludes views; list each view by itself, at /v1/jobs/{job}/views/{view}/results"
        errors = {f"query.{name}": reason for name in given}
        detail = f"{', '.join(given)} and views do not go together"
        raise Problem("parameter-invalid", detail, errors=errors)


def _answer_views(pages: Mapping[str, ResultPage], if_none_match: str | None) -> Response:
    """Return the pages of several views, which are all at one epoch."""
    first, *_ = pages.values()
    headers = make_epoch_headers(first.table_tag, first.epoch, first.watermark)
    if is_unchanged(if_none_match, headers):
        return Response(status_code=304, headers=headers)
    named = b",".join(
        b"%b:%b" % (msgspec.json.encode(view), encode_page(page.epoch, page.documents, page.cursor))
        for view, page in pages.items()
    )
    body = b'{"epoch":%d,"views":{%b}}' % (first.epoch, named)
    return Response(body, headers=headers, media_type="application/json")


def _encode(
    request: Request, live_table: LiveTable, page: ResultPage, media: Media, spreadsheet: bool
) -> Response:
    headers = make_epoch_headers(page.table_tag, page.epoch, page.watermark, Vary="Accept")
    if page.cursor is not None:
        query = [(k, v) for k, v in request.query_params.multi_items() if k != "cursor"]
        query.append(("cursor", page.cursor))
        headers["Link"] = f'<{request.url.path}?{urlencode(query)}>; rel="next"'
    if media is Media.JSON:
        body = encode_page(page.epoch, page.documents, page.cursor)
    elif media is Media.NDJSON:
        body = encode_ndjson(page.documents)
    elif media is Media.ARROW:
        body = encode_results(live_table.shape.types, page.documents)
    else:
        body = encode_csv(live_table.shape.names, page.documents, spreadsheet=spreadsheet)
    return Response(body, headers=headers, media_type=str(media))


@router.get(
    "/results/{key}",
    responses=describe_responses(Result, 404, 409, 410, 412, 422, 429) | NOT_MODIFIED,
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
    """Return one group by its percent-encoded key.

    The key is the value of the group column. It is a JSON object of all group columns if the value
    is NULL or starts with `{`, or if there are several columns.
    """
    runtime = runtime_of(request)
    live_table = await open_view(request, name)
    group = parse_key(live_table, key)
    await wait_for_data(request, [live_table], min_epoch, after_offset, wait)
    watermark: int | None = None
    if as_of is None:  # one B-tree lookup: not worth a thread
        epoch, document, tag = live_table.index.lookup(live_table.shape.key_bytes(group))
        newest = live_table.newest
        watermark = None if newest is None else newest.watermark
    else:
        epoch, watermark, document, tag = await run_in_threadpool(
            runtime.results.read_group, live_table, live_table.shape.key_bytes(group), as_of
        )
    if document is None:
        detail = f"no such group exists at epoch {epoch}"
        raise Problem("group-unknown", detail, epoch=epoch, headers={"X-Epoch": str(epoch)})
    headers = make_epoch_headers(tag, epoch, watermark)
    if is_unchanged(if_none_match, headers):
        return Response(status_code=304, headers=headers)
    body = b'{"epoch":%d,"row":%b}' % (epoch, document)
    return Response(body, headers=headers, media_type="application/json")
