"""Pages about the service itself: what works, what it may use, and what its words mean."""

from __future__ import annotations

import platform
import shutil
from collections import Counter
from importlib import metadata
from typing import NamedTuple

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.limits import CONSOLE_DISK_FREE_SHARE_MIN, POSTGRES_CONNECTIONS_MAX
from service.access.tokens import Role
from service.console.formatting import format_duration, format_size
from service.console.job_view import label_state
from service.console.page import PageRoute, render_page
from service.console.visitor import require_visitor
from service.problems import Problem
from service.runtime import Runtime, runtime_of

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_PACKAGES = ("retally", "pyspark", "delta-spark", "deltalake", "pyarrow", "duckdb", "kafka-python")


class Check(NamedTuple):
    """What was checked, whether it is good, and what was found."""

    subject: str
    good: bool
    found: str


class Use(NamedTuple):
    """How much of a limit is in use; None if nobody counts it."""

    name: str
    used: int | None
    most: int


def _run_checks(runtime: Runtime) -> list[Check]:
    healthy = not runtime.leads or runtime.supervisor.healthy
    role = "leads" if runtime.leads else "only reads; another service leads"
    disk = shutil.disk_usage(runtime.settings.data)
    checks = [
        Check("Service", healthy, role if healthy else "the supervisor of jobs is not running"),
        Check(
            "Disk",
            disk.free >= CONSOLE_DISK_FREE_SHARE_MIN * disk.total,
            f"{format_size(disk.free)} of {format_size(disk.total)} free for tables and logs",
        ),
    ]
    for name in sorted(runtime.settings.connections.by_name):
        try:
            seconds = runtime.topics.measure_answer(name)
            checks.append(
                Check(f"Brokers of {name}", True, f"answer in {format_duration(seconds)}")
            )
        except Problem as problem:
            checks.append(Check(f"Brokers of {name}", False, problem.detail))
    return checks


def _list_uses(runtime: Runtime, running: int) -> list[Use]:
    settings = runtime.settings
    found = [
        Use("Jobs that run at once", running, settings.running_max),
        Use("Streams of changes", runtime.stream_slots.total, settings.capacity.followers),
        Use("Requests in progress", None, settings.capacity.requests),
        Use("Idle connections", None, settings.capacity.waiting),
    ]
    if settings.postgres_port is not None:
        used = runtime.postgres_counts.signed_in
        found.append(Use("Connections of PostgreSQL's clients", used, POSTGRES_CONNECTIONS_MAX))
    return found


@router.get("/health")
async def health_page(request: Request) -> Response:
    """Show what the service needs and has, and its limits."""
    visitor = require_visitor(request, Role.OPERATOR)
    runtime = runtime_of(request)
    records = runtime.jobs.list_records()
    checks = await run_in_threadpool(_run_checks, runtime)
    return await render_page(
        request,
        visitor,
        "health.html",
        checks=checks,
        good=all(each.good for each in checks),
        states=Counter(map(label_state, records)).most_common(),
        uses=_list_uses(runtime, len([each for each in records if each.pid is not None])),
        master=runtime.settings.master,
        versions=[("Python", platform.python_version())]
        + [(name, metadata.version(name)) for name in _PACKAGES],
    )


@router.get("/help")
async def help_page(request: Request) -> Response:
    """Show the words of the pages, each with the document about it."""
    return await render_page(request, require_visitor(request), "help.html")
