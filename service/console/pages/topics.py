"""Pages of topics: what the brokers have, who reads and writes it, and a job from it."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from jobs.core.suggestion.spec_text import Suggestion
from jobs.topics.samples import Sample
from schemas.documents.answers import Topic
from schemas.spec import connections
from service.access.tokens import Role
from service.console.page import PageRoute, render_page
from service.console.pictures.lineage import JobTopics, list_job_topics
from service.console.rows import Column, sort_table
from service.console.visitor import require_visitor
from service.problems import Problem
from service.runtime import runtime_of

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_RAW_CHARACTERS = 2_000


@router.get("/topics")
async def topics_page(
    request: Request, connection: str = connections.DEFAULT, find: str = "", order: str = ""
) -> Response:
    """List the topics of a connection whose name contains `find`."""
    visitor = require_visitor(request, Role.ADMIN)
    runtime = runtime_of(request)
    topics: list[Topic] = []
    known, refused = 0, None
    try:
        topics, known = await run_in_threadpool(
            runtime.topics.list_topics, connection, find.strip()
        )
    except Problem as problem:
        refused = problem.detail
    jobs = await run_in_threadpool(list_job_topics, runtime.jobs.list_records())
    rows = [TopicRow(each, *_find_users(jobs, connection, each.name)) for each in topics]
    at = "" if connection == connections.DEFAULT else connection
    headings, rows = sort_table(_COLUMNS, rows, order, connection=at, find=find)
    return await render_page(
        request,
        visitor,
        "topics/list.html",
        topics=rows,
        headings=headings,
        find=find,
        order=order,
        known=known,
        refused=refused,
        connection=connection,
        connections=sorted(runtime.settings.connections.by_name),
        address=_address,
    )


class TopicRow(NamedTuple):
    """A topic in the list, with the jobs that read and write it."""

    topic: Topic
    readers: list[str]
    writers: list[str]


_COLUMNS = (
    Column("name", "Topic", lambda row: row.topic.name),
    Column("partitions", "Partitions", lambda row: len(row.topic.partitions), "num"),
    Column("records", "Records", lambda row: row.topic.records, "num"),
    Column("rate", "Rate", lambda row: row.topic.rate, "num"),
    Column("readers", "Read by", lambda row: row.readers or None),
    Column("writers", "Written by", lambda row: row.writers or None),
)


@router.get("/topics/{name}")
async def topic_page(
    request: Request, name: str, connection: str = connections.DEFAULT
) -> Response:
    """Show one topic: partitions, newest messages, and what they look like."""
    visitor = require_visitor(request, Role.ADMIN)
    request.state.reads = (f"{connection}/{name}",)
    runtime = runtime_of(request)
    topic = await run_in_threadpool(runtime.topics.describe_topic, connection, name)
    newest: list[Sample] = []
    suggestion, refused = Suggestion(None), None
    try:
        newest = await runtime.samples.read_newest(connection, [name])
        suggestion = await runtime.suggest_spec(connection, name)
    except Problem as problem:
        refused = problem.detail
    jobs = await run_in_threadpool(list_job_topics, runtime.jobs.list_records())
    readers, writers = _find_users(jobs, connection, name)
    return await render_page(
        request,
        visitor,
        "topics/topic.html",
        connection=connection,
        address=_address,
        topic=topic,
        readers=readers,
        writers=writers,
        suggestion=suggestion,
        refused=refused,
        messages=[_show_message(each) for each in newest],
    )


class ShownMessage(NamedTuple):
    """A message with the start of its text."""

    sample: Sample
    text: str
    cut: bool


def _show_message(sample: Sample) -> ShownMessage:
    text = (sample.value or b"").decode("utf-8", "replace")
    cut = sample.cut or len(text) > _RAW_CHARACTERS
    return ShownMessage(sample, text[:_RAW_CHARACTERS], cut)


def _find_users(jobs: list[JobTopics], connection: str, topic: str) -> tuple[list[str], list[str]]:
    """Return the jobs that read a topic, and those that write it or their progress to it."""
    connected = (connection, topic)
    readers = [each.name for each in jobs if connected in each.sources]
    return readers, [each.name for each in jobs if connected in each.written]


def _address(name: str, connection: str, path: str = "/topics/") -> str:
    query = "" if connection == connections.DEFAULT else f"?{urlencode({'connection': connection})}"
    return f"{path}{name}{query}"
