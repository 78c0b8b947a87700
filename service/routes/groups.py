"""Routes of what lies behind results: explain, history, differences, quarantine."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.limits import PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX
from service.access.requirements import needs
from service.access.tokens import Role
from service.answers.difference import difference_page
from service.routes.answering import (
    answer,
    key_of,
    of_epoch,
    read_table,
)
from service.routes.documents import Difference, Explained, History, Quarantine, Quarantined
from service.routes.examples import ROW, answers
from service.runtime import runtime_of
from service.table.explanation import GroupHistory
from service.table.job_table import Table
from service.table.quarantine import message, messages, place_of, with_replay

router = APIRouter(prefix="/v1/jobs/{name}", dependencies=[Depends(needs(Role.VIEWER))])


_EXPLAINED = {
    "job": "items",
    "epoch": 41,
    "group": {"name": "bolt"},
    "row": ROW,
    "row_count": 71,
    "changed": 41,
    "withheld": False,
    "closed": False,
    "late": [],
    "written_ms": None,
    "arguments": [
        {"argument": "cnt", "sum": 36120, "multiset": [{"value": 998, "multiplicity": 1}]}
    ],
    "epochs": [
        {
            "epoch": 41,
            "changes": [{"op": "+U", "row": ROW}],
            "offsets": {"shop.product": {"0": [120, 131]}},
        }
    ],
    "history_complete": True,
    "why": [
        "top went up from 991 to 998 in epoch 41: a row with 998 came (read from shop.product/0 "
        "[120, 131))."
    ],
}
_CHANGE = {"op": "+U", "epoch": 41, "seq": 12884901889, "row": ROW}
_REJECT = {
    "id": "7-shop.product-0-12",
    "reason": "cnt: 'x' is not a valid INT",
    "path": "$.data[0].cnt",
    "raw": '{"data":[{"cnt":"x"}]}',
    "replayed": None,
}


@router.get(
    "/results/{key}/explain",
    tags=["results"],
    responses=answers(Explained, _EXPLAINED, 404, 409, 422, 429),
)
async def explain(request: Request, name: str, key: str) -> Response:
    """Why a group's values are what they are: sums, multisets, epochs, source offsets."""
    runtime = runtime_of(request)
    follower = await runtime.ready(name)
    group = key_of(follower, key)

    def look(table: Table) -> dict[str, Any]:
        buckets = follower.spec.state.buckets
        return GroupHistory(table, follower.shape, group, buckets).explained()

    document = await run_in_threadpool(read_table, runtime, follower, look)
    headers = of_epoch(document["epoch"])
    return answer({"job": name, **document}, headers=headers)


@router.get(
    "/results/{key}/history",
    tags=["results"],
    responses=answers(
        History, {"epoch": 41, "changes": [_CHANGE], "complete": True}, 404, 409, 422, 429
    ),
)
async def history(
    request: Request,
    name: str,
    key: str,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX, description="the newest so many")] = 1_000,
) -> Response:
    """The changelog of one group, oldest first."""
    runtime = runtime_of(request)
    follower = await runtime.ready(name)
    group = key_of(follower, key)

    def look(table: Table) -> dict[str, Any]:
        told = GroupHistory(table, follower.shape, group, follower.spec.state.buckets)
        changes = told.changes(limit + 1)
        rows = table.epochs()
        return {
            "epoch": rows[-1].epoch,
            "group": follower.shape.key(group),
            "changes": changes[-limit:],
            "complete": len(changes) <= limit and told.complete(rows),
        }

    document = await run_in_threadpool(read_table, runtime, follower, look)
    return answer(document, headers=of_epoch(document["epoch"]))


@router.get(
    "/diff",
    tags=["results"],
    responses=answers(
        Difference,
        {
            "from": 40, "to": 41, "next_cursor": None,
            "rows": [{"key": {"name": "bolt"}, "before": None, "after": ROW}],
        },
        404, 409, 410, 422, 429,
    ),
)  # fmt: skip
async def diff(
    request: Request,
    name: str,
    first: Annotated[int, Query(alias="from", ge=0, le=2**62)],
    last: Annotated[int | None, Query(alias="to", ge=0, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)] = PAGE_ROWS_DEFAULT,
    cursor: Annotated[str | None, Query(description="next_cursor of the page before")] = None,
) -> Response:
    """The groups whose results differ between two epochs: how they were, how they are."""
    runtime = runtime_of(request)
    follower = await runtime.ready(name)

    def look(table: Table) -> dict[str, Any]:
        return difference_page(table, follower.shape, name, first, last, limit, cursor)

    document = await run_in_threadpool(read_table, runtime, follower, look)
    return answer(document)


@router.get(
    "/quarantine",
    tags=["quarantine"],
    responses=answers(Quarantine, {"messages": [_REJECT], "next_cursor": None}, 404, 409, 422, 429),
)
async def list_quarantine(
    request: Request,
    name: str,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    cursor: Annotated[str | None, Query(description="next_cursor of the page before")] = None,
) -> Response:
    """Messages that were not taken, oldest first, with the reason and the beginning of each."""
    runtime = runtime_of(request)
    follower = await runtime.ready(name)
    after = place_of(cursor) if cursor else None
    found = await run_in_threadpool(
        read_table, runtime, follower, lambda table: messages(table, after, limit + 1)
    )
    more = found[limit - 1]["id"] if len(found) > limit else None
    shown = [with_replay(follower.places, each) for each in found[:limit]]
    return answer({"messages": shown, "next_cursor": more})


@router.get(
    "/quarantine/{id}", tags=["quarantine"], responses=answers(Quarantined, _REJECT, 404, 409, 429)
)
async def get_quarantine(request: Request, name: str, id: str) -> Response:
    """One message in quarantine, with all the bytes that were kept of it."""
    runtime = runtime_of(request)
    follower = await runtime.ready(name)
    place = place_of(id)
    found = await run_in_threadpool(
        read_table, runtime, follower, lambda table: message(table, place)
    )
    return answer(with_replay(follower.places, found))
