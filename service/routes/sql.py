"""The route of SQL over results: one SELECT, answered by a worker process."""

from __future__ import annotations

import asyncio
import json

from fastapi import APIRouter, Request
from fastapi.responses import Response

from schemas.process.statements import StatementReply, StatementRequest
from service.access.requirements import VIEWER
from service.answers.event_stream import wait_for_disconnect
from service.documents import SqlAnswer
from service.routes.answering import parse_body
from service.routes.examples import describe_body, describe_responses
from service.runtime import runtime_of
from service.sql.workers import StatementProblem

router = APIRouter(prefix="/v1", tags=["results"])

_MEDIA = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.stream",
}


@router.post(
    "/sql",
    dependencies=[VIEWER],
    openapi_extra=describe_body(StatementRequest),
    responses=describe_responses(
        SqlAnswer,
        413,
        422,
        429,
        media={"text/csv": "name,sum_cnt", "application/vnd.apache.arrow.stream": None},
    ),
)
async def answer_sql(request: Request) -> Response:
    """Answer one SELECT over the results of all jobs.

    Each job is a table; `items AT EPOCH 41` and `items AT TIME '...'` are its past. The header
    Retally-Epochs has the epoch of each table, as JSON.
    """
    request.state.reads = ()  # a refused statement read no table
    statement = await parse_body(request, StatementRequest)
    reply, body = await _answer_while_wanted(request, statement)
    request.state.reads = tuple(reply.epochs)
    headers = {"Retally-Epochs": json.dumps(reply.epochs)}
    return Response(body, media_type=_MEDIA[statement.format], headers=headers)


async def _answer_while_wanted(
    request: Request, statement: StatementRequest
) -> tuple[StatementReply, bytes]:
    """Return the answer of a statement; give it up if the client closes the connection."""
    left = asyncio.create_task(wait_for_disconnect(request.receive))
    work = asyncio.create_task(_answer_when_free(request, statement))
    try:
        await asyncio.wait((left, work), return_when=asyncio.FIRST_COMPLETED)
    finally:
        left.cancel()
        if not work.done():
            work.cancel()
    try:
        return await work
    except asyncio.CancelledError:
        raise StatementProblem("the client has closed the connection", "57014") from None


async def _answer_when_free(
    request: Request, statement: StatementRequest
) -> tuple[StatementReply, bytes]:
    runtime, state = runtime_of(request), request.state
    async with runtime.sql_queue.hold(state.who, state.role, state.by == "loopback"):
        return await runtime.sql_workers.answer(statement)
