"""The route of SQL over results: one SELECT, answered by a worker process."""

from __future__ import annotations

import json

from fastapi import APIRouter, Request
from fastapi.responses import Response

from schemas.documents.answers import SqlAnswer
from schemas.process.statements import StatementRequest
from service.access.requirements import VIEWER
from service.answers.event_stream import wait_for_disconnect
from service.routes.answering import parse_body
from service.routes.examples import describe_body, describe_responses
from service.runtime import runtime_of

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
    state, leaving = request.state, wait_for_disconnect(request.receive)
    shared = state.by == "loopback"
    answers = runtime_of(request).sql_answers
    reply, body = await answers.answer(statement, state.who, state.role, shared, leaving)
    request.state.reads = tuple(reply.epochs)
    headers = {"Retally-Epochs": json.dumps(reply.epochs)}
    return Response(body, media_type=_MEDIA[statement.format], headers=headers)
