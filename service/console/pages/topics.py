"""Pages of topics: what the brokers have, who reads and writes it, and a job from it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.spec import connections
from service.access.tokens import Role
from service.answers.topics import TopicInfo
from service.console.editor.suggestion import suggest_spec
from service.console.page import PageRoute, render_page
from service.console.pictures.lineage import JobTopics, list_job_topics
from service.console.visitor import require_visitor
from service.problems import Problem
from service.runtime import Runtime, runtime_of

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_RAW_CHARACTERS = 2_000


@router.get("/topics")
async def topics_page(request: Request, connection: str = connections.DEFAULT) -> Response:
    """List the topics of a connection."""
    visitor = require_visitor(request, Role.ADMIN)
    runtime = runtime_of(request)
    topics: list[TopicInfo] = []
    known, refused = 0, None
    try:
        topics, known = await run_in_threadpool(runtime.topics.list_topics, connection)
    except Problem as problem:
        refused = problem.detail
    except connections.UnknownConnectionError as error:
        refused = str(error)
    jobs = await run_in_threadpool(list_job_topics, runtime.jobs.list_records())
    return await render_page(
        request,
        visitor,
        "topics/list.html",
        topics=[(each, *_find_users(jobs, connection, each.name)) for each in topics],
        known=known,
        refused=refused,
        connection=connection,
        connections=sorted(runtime.settings.connections.by_name),
        address=_address,
    )


@router.get("/topics/{name}")
async def topic_page(
    request: Request, name: str, connection: str = connections.DEFAULT
) -> Response:
    """Show one topic: partitions, newest messages, and what they look like."""
    visitor = require_visitor(request, Role.ADMIN)
    request.state.reads = (f"{connection}/{name}",)
    runtime = runtime_of(request)
    try:
        values = await run_in_threadpool(_describe, runtime, connection, name)
    except connections.UnknownConnectionError as error:
        raise Problem("not-found", 404, str(error)) from None
    return await render_page(
        request, visitor, "topics/topic.html", connection=connection, address=_address, **values
    )


def _describe(runtime: Runtime, connection: str, name: str) -> dict[str, Any]:
    topic = runtime.topics.describe_topic(connection, name)
    messages = runtime.samples.read_newest(connection, [name])
    readers, writers = _find_users(list_job_topics(runtime.jobs.list_records()), connection, name)
    return {
        "topic": topic,
        "readers": readers,
        "writers": writers,
        "suggestion": suggest_spec(name, connection, [each.value for each in messages]),
        "messages": [
            (each, (each.value or b"")[: 4 * _RAW_CHARACTERS].decode("utf-8", "replace"))
            for each in messages
        ],
        "raw_max": _RAW_CHARACTERS,
    }


def _find_users(jobs: list[JobTopics], connection: str, topic: str) -> tuple[list[str], list[str]]:
    """Return the jobs that read a topic, and those that write it or their progress to it."""
    connected = (connection, topic)
    readers = [each.name for each in jobs if connected in each.sources]
    return readers, [each.name for each in jobs if connected in each.written]


def _address(name: str, connection: str, path: str = "/topics/") -> str:
    query = "" if connection == connections.DEFAULT else f"?{urlencode({'connection': connection})}"
    return f"{path}{name}{query}"
