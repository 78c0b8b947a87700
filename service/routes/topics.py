"""Routes of topics: what the brokers of a connection have, and a spec that reads a topic."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.documents.answers import SuggestedSpec, Topics
from schemas.spec import connections
from service.access.requirements import ADMIN
from service.problems import Problem
from service.routes.answering import answer
from service.routes.examples import describe_responses
from service.runtime import runtime_of

router = APIRouter(prefix="/v1", tags=["topics"], dependencies=[ADMIN])

ConnectionName = Annotated[str, Query(description="a connection of the service")]


@router.get("/topics", responses=describe_responses(Topics, 404, 502, 503))
async def list_topics(
    request: Request, connection: ConnectionName = connections.DEFAULT
) -> Response:
    """Return the first 200 topics of a connection by name, without Kafka's own.

    `known` is the number of all. A rate is that since the reading before, if there was one.
    """
    runtime = runtime_of(request)
    found, known = await run_in_threadpool(runtime.topics.list_topics, connection)
    return answer(Topics(connection, known, found))


@router.get(
    "/topics/{topic}/suggestion",
    responses=describe_responses(SuggestedSpec, 404, 409, 422, 429, 501, 502, 503),
)
async def suggest_spec(
    request: Request, topic: str, connection: ConnectionName = connections.DEFAULT
) -> Response:
    """Return a spec for a topic as YAML, from its newest messages, to be checked by a person.

    The code `no-suggestion` has the reason: the topic is empty, or its messages have no rows.
    """
    request.state.reads = (f"{connection}/{topic}",)
    found = await runtime_of(request).suggest_spec(connection, topic)
    if found.text is None:
        raise Problem("no-suggestion", found.reason or "")
    return answer(SuggestedSpec(topic, connection, found.text))
