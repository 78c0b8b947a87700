"""The jobs, and one job: how they are, how they came there, what can be done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.limits import CONSOLE_LOG_LINES, CONSOLE_OPERATIONS, CONSOLE_SAVEPOINTS
from service.console import words
from service.console.job_view import JobView, job_view, state_words, view_of
from service.console.page import PageRoute, elsewhere, page
from service.console.pictures import job_pictures
from service.console.pictures.dataflow import WIDTH, topology
from service.console.pictures.partition_strip import partition_strip
from service.console.story.advice import advice
from service.console.visitor import Visitor, visitor_of
from service.live.epoch_history import Course
from service.moments import now_ms
from service.problems import Problem
from service.routes.evolution import told
from service.routes.progress import savepoints_of
from service.runtime import Runtime, runtime_of
from service.supervision import job_log, operations
from service.supervision.register import Desired, JobRecord

router = APIRouter(include_in_schema=False, route_class=PageRoute)

Level = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
_COUNTED = {
    "quarantined": "messages in quarantine",
    "skipped": "messages skipped (DDL, tombstones)",
    "filtered": "messages of other tables",
    "late": "late rows",
    "duplicates": "repeated changes",
    "dropped_retractions": "retractions dropped",
    "unmatched_retractions": "retractions of rows never seen",
    "misfits": "results that did not fit their type",
    "expired": "groups expired",
    "closed": "windows closed",
}
_NO_COURSE = Course()


@dataclass(frozen=True, slots=True)
class Action:
    """A button of a job: the route's word, and whether a dialog asks first."""

    name: str
    label: str
    kind: str = ""
    asks: bool = False


@router.get("/")
async def jobs_page(request: Request, find: str = "", state: str = "") -> Response:
    """All jobs, or those whose name has these letters, or that are in this state."""
    visitor = visitor_of(request)
    runtime = runtime_of(request)
    records = runtime.jobs.records()
    states = Counter(state_words(each) for each in records)
    wanted = [
        each
        for each in records
        if find.strip().lower() in each.name and state in ("", state_words(each))
    ]
    shown = await run_in_threadpool(_jobs, runtime, wanted)
    return await page(
        request, visitor, "jobs.html",
        jobs=shown, all=len(records), states=states.most_common(), find=find, state=state,
    )  # fmt: skip


@router.get("/jobs")
async def all_jobs(request: Request) -> Response:
    """Where a cut address leads."""
    visitor_of(request)
    return elsewhere("/")


def _jobs(runtime: Runtime, records: Iterable[JobRecord]) -> list[dict[str, Any]]:
    now = now_ms()
    found = []
    for record in records:
        job = view_of(runtime, record)
        course = _NO_COURSE if job.follower is None else job.follower.course
        pace = job_pictures.rate_chart(course, now, job_pictures.SPARK_MS)
        found.append({"job": job, "pace": pace, "freshness": freshness(job, now)})
    return found


@router.get("/jobs/{name}")
async def job_page(
    request: Request, name: str, level: Annotated[Level, Query()] = "DEBUG"
) -> Response:
    """One job."""
    visitor = visitor_of(request)
    runtime = runtime_of(request)
    runtime.jobs.record(name)
    with suppress(Problem):  # a job without results has a page all the same
        await runtime.ready(name)
    job = job_view(request, name)
    shown = await run_in_threadpool(_job, runtime, visitor, job, level)
    return await page(request, visitor, "job.html", job=job, tab="overview", **shown)


def _job(runtime: Runtime, visitor: Visitor, job: JobView, level: Level) -> dict[str, Any]:
    now = now_ms()
    course = _NO_COURSE if job.follower is None else job.follower.course
    epochs = course.epochs[-job_pictures.EPOCHS_SHOWN :]
    places = runtime.jobs.places(job.name)
    newest = job.newest
    lags = {} if job.behind is None else job.behind.partitions
    return {
        "actions": actions(visitor, job),
        "evolution": _evolution(runtime, job),
        "advised": advice(job.record.failure, retried=job.record.retry_at is not None),
        "freshness": freshness(job, now),
        "charts": job_pictures.course_charts(course, now),
        "epochs_since": f"epoch {epochs[0].epoch}" if epochs else "",
        "strip": None if newest is None else partition_strip(newest, lags),
        "topology": _topology(job),
        "topology_width": WIDTH,
        "size": runtime.state_sizes.of(places.table),
        "counted": _counted({} if job.follower is None else job.follower.totals),
        "savepoints": savepoints_of(runtime, job.name)[-CONSOLE_SAVEPOINTS:],
        "operations": [
            operations.described(each)
            for each in runtime.register.operations(job.name, CONSOLE_OPERATIONS)
        ],
        "log": job_log.tail(places.log, CONSOLE_LOG_LINES, level),
        "level": level,
    }


def _evolution(runtime: Runtime, job: JobView) -> dict[str, Any] | None:
    """What the pending spec would make of the job's state; None where there is no state."""
    if job.record.pending is None:
        return None
    with suppress(Problem):
        return told(runtime, job.record, runtime.jobs.pending(job.record))
    return None


def _topology(job: JobView) -> Any:
    counters = {} if job.newest is None else job.newest.counters
    return None if job.plan is None else topology(job.spec, job.plan, counters)


def _counted(totals: Mapping[str, int]) -> list[tuple[str, int]]:
    """What went another way than into the results, where there was any."""
    return [(said, totals[name]) for name, said in _COUNTED.items() if totals.get(name)]


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old a topic the results show."""

    said: str
    more: str


def freshness(job: JobView, now: int) -> Freshness:
    """An epoch shows the topic as it was when the epoch began; when nothing waits, as it is."""
    newest = job.newest
    if newest is None or job.committed_ms is None:
        return Freshness(words.ABSENT, "")
    took = (newest.counters.get("compute_seconds") or 0) * 1_000
    behind = (now - job.committed_ms + took) / 1_000
    if not job.running:
        return Freshness(words.duration(behind), "since its last epoch began")
    if job.lag == 0:
        return Freshness("current", "all that is there is counted")
    return Freshness(words.duration(behind), "since the newest epoch began")


def actions(visitor: Visitor, job: JobView) -> list[Action]:
    """What can be done with a job as it is, the likeliest first."""
    record = job.record
    found: list[Action] = []
    if record.pending is not None and record.desired != Desired.RUNNING:
        pass  # it is to be decided about first, in the notice of it
    elif record.desired == Desired.PAUSED:
        found.append(Action("resume", "Resume", "main"))
    elif record.desired == Desired.STOPPED or (record.retry_at is None and job.stopped):
        found.append(Action("start", "Start", "main"))
    if record.desired == Desired.RUNNING and (job.running or record.retry_at is not None):
        if job.running:
            kind = "main" if job.restart_needed else ""
            found.append(Action("restart", "Restart", kind, asks=True))
        found.append(Action("pause", "Pause"))
    if record.desired != Desired.STOPPED:
        found.append(Action("stop", "Stop", asks=True))
    if visitor.administers and job.stopped:
        found.append(Action("delete", "Delete", "danger", asks=True))
    return found
