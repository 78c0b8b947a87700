"""The page about the service itself: what works, and what it may use."""

from __future__ import annotations

import platform
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from importlib import metadata
from typing import NamedTuple

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.limits import (
    BROKERS_ASKED_AT_ONCE_MAX,
    CONSOLE_DISK_FREE_SHARE_MIN,
    POSTGRES_CONNECTIONS_MAX,
    SAMPLE_SECONDS_MAX,
)
from service.access.tokens import Role
from service.console.formatting import format_duration, format_size
from service.console.job_view import label_state
from service.console.page import PageRoute, render_page
from service.console.visitor import Visitor, require_visitor
from service.limits.bounded_protocol import BoundedProtocol
from service.problems import Problem
from service.runtime import Runtime, runtime_of

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_PACKAGES = ("retally", "pyspark", "delta-spark", "deltalake", "pyarrow", "duckdb", "kafka-python")


class Check(NamedTuple):
    """What was checked, whether it is healthy, and the result."""

    subject: str
    good: bool
    found: str


class Use(NamedTuple):
    """How much of a limit is in use."""

    name: str
    used: int
    limit: int


def _run_checks(runtime: Runtime, visitor: Visitor) -> list[Check]:
    healthy = not runtime.leads or runtime.supervisor.healthy
    role = "leads" if runtime.leads else "only reads; another service leads"
    disk = shutil.disk_usage(runtime.settings.data)
    brokers = _check_brokers(runtime)
    if not visitor.can_administer:  # as on the pages of topics
        answered = sum(each.good for each in brokers)
        counted = f"{answered} of {len(brokers)} connections answer"
        brokers = [Check("Brokers", answered == len(brokers), counted)]
    return [
        Check("Service", healthy, role if healthy else "the supervisor of jobs is not running"),
        Check(
            "Disk",
            disk.free >= CONSOLE_DISK_FREE_SHARE_MIN * disk.total,
            f"{format_size(disk.free)} of {format_size(disk.total)} free for tables and logs",
        ),
        *brokers,
    ]


def _check_brokers(runtime: Runtime) -> list[Check]:
    """Ask the brokers of all connections at once; those that take too long are unhealthy."""
    late = f"no answer within {SAMPLE_SECONDS_MAX:.0f} s"
    pool = ThreadPoolExecutor(BROKERS_ASKED_AT_ONCE_MAX, "brokers")
    names = sorted(runtime.settings.connections.by_name)
    asked = {name: pool.submit(runtime.topics.measure_answer, name) for name in names}
    done, _ = wait(asked.values(), SAMPLE_SECONDS_MAX)
    pool.shutdown(wait=False, cancel_futures=True)  # a client gives up by itself
    checks = []
    for name, answer in asked.items():
        try:
            good = answer in done
            found = f"answer in {format_duration(answer.result())}" if good else late
        except Problem as problem:
            good, found = False, problem.detail
        checks.append(Check(f"Brokers of {name}", good, found))
    return checks


def _list_uses(runtime: Runtime, running: int) -> list[Use]:
    settings, streams = runtime.settings, runtime.stream_slots.total
    found = [
        Use("Jobs that run at once", running, settings.running_max),
        Use("Streams of changes", streams, settings.capacity.followers),
        Use("Requests in progress", runtime.requests_at_work - streams, settings.capacity.requests),
        Use("Idle connections", len(BoundedProtocol.waiting), settings.capacity.waiting),
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
    checks = await run_in_threadpool(_run_checks, runtime, visitor)
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
