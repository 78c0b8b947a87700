"""Pages of all jobs and of one job: state, charts, and the actions of the visitor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from jobs.core.job.window_rules import window_notes
from jobs.reading.parts import ACCUMULATORS
from schemas.directory.documents import read_document
from schemas.directory.reports import PHASES, READY, SNAPSHOT, StartProgress
from schemas.documents.answers import Evolution, Level
from schemas.failures.catalogue import failure_kinds
from schemas.limits import CONSOLE_LOG_LINES, CONSOLE_SAVEPOINTS, JOB_STOP_SECONDS_MAX
from schemas.spec.job import JobSpec
from schemas.table.view_path import place_part
from schemas.types.moments import now_ms
from service.answers.listing import parse_listing
from service.console.explanations.newest_changes import list_newest_changes
from service.console.explanations.ready_statements import write_statements
from service.console.formatting import ABSENT, base_of, format_duration, parse_moment
from service.console.job_view import JobView, find_job, label_state, view_job
from service.console.page import Context, PageRoute, redirect_to, render_page
from service.console.pictures import charts
from service.console.pictures.charts import LineChart, TimeRange
from service.console.pictures.dataflow import WIDTH, Dataflow, draw_dataflow
from service.console.pictures.lineage import JobTopics, draw_lineage, list_job_topics
from service.console.pictures.partition_strip import draw_partitions
from service.console.rows import Column, make_row, sort_table
from service.console.visitor import Visitor, require_visitor
from service.live.epoch_history import EpochHistory
from service.problems import Problem
from service.routes.progress import list_job_savepoints
from service.runtime import Runtime, runtime_of
from service.supervision import job_log
from service.supervision.evolving import describe_evolution
from service.supervision.register import Actual, JobRecord

router = APIRouter(include_in_schema=False, route_class=PageRoute)

Span = Literal["10m", "1h", "24h"]
_COUNTERS = {
    "quarantined": "messages in quarantine",
    "skipped": "messages skipped (DDL, tombstones)",
    "filtered": "messages of other tables",
    "late": "late rows",
    "duplicates": "repeated changes",
    "damaged_texts": "texts with lost characters (\ufffd): canal damages latin1 columns",
    "keys_in_several_partitions": "keys in several partitions: their changes have no order",
    "ambiguous_keys": "keys whose changes may be repeats, or from before a TRUNCATE",
    "dropped_retractions": "retractions dropped",
    "unmatched_retractions": "retractions before their rows, or of rows never inserted",
    "rows_caught_up": "rows of state read again: tasks of another host had written them",
    "tasks_placed": "tasks with a home executor",
    "tasks_at_home": "tasks that ran at home",
    "source_repeats": "places where the source repeats itself",
    "misfits": "results out of the range of their type",
    "expired": "groups expired",
    "closed": "windows closed",
}
_NO_HISTORY = EpochHistory()


@router.get("/")
async def jobs_page(request: Request, find: str = "", state: str = "", order: str = "") -> Response:
    """List the jobs in `state` whose name, labels, query or topics contain `find`."""
    visitor = require_visitor(request)
    runtime = runtime_of(request)
    records = runtime.jobs.list_records()
    states = Counter(label_state(each) for each in records)
    topics = await run_in_threadpool(list_job_topics, records)
    texts = {each.name: each.text for each in topics}
    wanted = [
        each
        for each in records
        if find.strip().lower() in texts.get(each.name, each.name)
        and state in ("", label_state(each))
    ]
    rows = await run_in_threadpool(_make_rows, runtime, wanted, topics)
    headings, rows = sort_table(_COLUMNS, rows, order, find=find, state=state)
    return await render_page(
        request,
        visitor,
        "jobs.html",
        jobs=rows,
        headings=headings,
        newest=await run_in_threadpool(list_newest_changes, [each.job for each in rows]),
        order=order,
        lineage=None if find or state else draw_lineage(topics),
        all=len(records),
        states=states.most_common(),
        find=find,
        state=state,
    )


@router.get("/jobs")
async def all_jobs(request: Request) -> Response:
    """Redirect a shortened address."""
    require_visitor(request)
    return redirect_to("/")


class JobRow(NamedTuple):
    """A job in the list of jobs."""

    job: JobView
    query: str
    labels: tuple[str, ...]
    pace: LineChart
    freshness: Freshness


_COLUMNS = (
    Column("name", "Job", lambda row: row.job.name),
    Column("state", "State", lambda row: row.job.state),
    Column(
        "rate", "Messages in", lambda row: getattr(row.job.status.rates, "read_per_second", None)
    ),
    Column("lag", "Lag", lambda row: row.job.lag, "num"),
    Column("freshness", "Freshness", lambda row: row.freshness.seconds, "num"),
    Column("groups", "Groups", lambda row: row.job.status.groups, "num minor"),
    Column("watermark", "Watermark", lambda row: row.job.status.watermark, "minor"),
)


def _make_rows(
    runtime: Runtime, records: Iterable[JobRecord], topics: Iterable[JobTopics]
) -> list[JobRow]:
    now = now_ms()
    known = {each.name: (each.query, each.labels) for each in topics}
    found = []
    for record in records:
        job = view_job(runtime, record)
        history = _NO_HISTORY if job.live_table is None else job.live_table.history
        pace = charts.draw_rates(history, now, TimeRange.last("10m", now))
        found.append(JobRow(job, *known.get(job.name, ("", ())), pace, measure_freshness(job, now)))
    return found


@router.get("/jobs/{name}")
async def job_page(
    request: Request,
    name: str,
    level: Annotated[Level, Query()] = "DEBUG",
    span: Annotated[Span, Query()] = "10m",
    since: Annotated[str, Query(alias="from", max_length=40)] = "",
    until: Annotated[str, Query(alias="to", max_length=40)] = "",
    first: bool = False,
) -> Response:
    """Show one job; at its `first` start, lead to its first results."""
    visitor = require_visitor(request)
    runtime = runtime_of(request)
    find_job(request, name)  # or there is no such job
    now = now_ms()
    shown = _find_range(span, since, until, now)
    if any(each and not each.endswith("Z") for each in (since, until)):  # from the form
        base = base_of(*name.partition(".")[::2])
        return redirect_to(f"{base}?{shown.query}&level={level}")
    with suppress(Problem):  # a job without results has a page too
        await runtime.wait_until_ready(name)
    job = find_job(request, name)
    values = await run_in_threadpool(_describe, runtime, visitor, job, level, shown)
    group = await run_in_threadpool(_find_group, runtime, job) if first else None
    return await render_page(
        request,
        visitor,
        "job/overview.html",
        job=job,
        tab="overview",
        first=first,
        group=group,
        **values,
    )


def _find_range(span: Span, since: str, until: str, now: int) -> TimeRange:
    """Return the time of the charts; `since` and `until` of an address precede its span."""
    if not since and not until:
        return TimeRange.last(span, now)
    last = parse_moment("to", until) if until else now
    first = parse_moment("from", since) if since else last - charts.SPANS_MS[span]
    return TimeRange.between(first, last, now)


def _find_group(runtime: Runtime, job: JobView) -> str | None:
    """Return the address of the page of one group, or of all if rows do not name theirs."""
    if job.live_table is None or job.newest is None:
        return None
    shape = job.live_table.shape
    found = runtime.results.read_page(
        job.live_table, parse_listing(job.live_table, (), None, None), 1, None, None
    )
    for document in found.documents:
        link = make_row(shape, frozenset(), msgspec.json.decode(document)).link
        return f"{job.base}/results/{link}" if link else f"{job.base}/results"
    return None


def _describe(
    runtime: Runtime, visitor: Visitor, job: JobView, level: Level, shown: TimeRange
) -> Context:
    now = now_ms()
    history = _NO_HISTORY if job.live_table is None else job.live_table.history
    paths = runtime.jobs.find_paths(job.name)
    newest = job.newest
    spec = job.spec
    own = _find_view_spec(job, spec).with_defaults(runtime.settings.time_defaults)
    lags = {} if job.newest_lag is None else job.newest_lag.partitions
    return {
        "effect": _find_evolution(runtime, job),
        "advice": advise(job.record.failure, retried=job.retrying),
        "phases": list_phases(job, read_document(paths.start, StartProgress), now),
        "stopping_seconds": (now - job.record.since) / 1_000,
        "stop_seconds_max": JOB_STOP_SECONDS_MAX,
        "freshness": measure_freshness(job, now),
        "charts": charts.draw_job(history, now, shown),
        "spans": list(charts.SPANS_MS),
        "strip": None if newest is None else draw_partitions(newest, lags),
        "sources_of": own.sources_of,
        "notes": window_notes(own).values(),
        "dataflow": _draw_dataflow(job, own),
        "dataflow_width": WIDTH,
        "statements": []
        if newest is None or job.live_table is None
        else write_statements(
            job.live_table.shape,
            job.name,
            str(paths.table) if visitor.can_operate else f"DIR/jobs/{job.name}/epochs",
            place_part(ACCUMULATORS, job.view),
        ),
        "views": _list_views(job, spec),
        "size": runtime.state_sizes.read(paths.table),
        "keys_below_zero": [] if newest is None else newest.counts.keys_below_zero,
        "counters": _list_counters({} if job.live_table is None else job.live_table.totals),
        "savepoints": list_job_savepoints(runtime, job.name)[-CONSOLE_SAVEPOINTS:],
        "log": job_log.read_tail(paths.log, CONSOLE_LOG_LINES, level),
        "level": level,
    }


def _find_view_spec(job: JobView, spec: JobSpec) -> JobSpec:
    """Return the spec of the shown view; `evolve` changes views before the spec of the job."""
    if job.live_table is None:
        return spec.main
    return spec.view_specs.get(job.view, job.live_table.spec)


class ViewRow(NamedTuple):
    """A view in the list of a job's views."""

    name: str
    base: str
    query: str
    groups: int | None
    sink: str | None


def _list_views(job: JobView, spec: JobSpec) -> list[ViewRow]:
    """Return each view with its query, its groups and its sink; a job with one query has none."""
    found, specs = [], spec.view_specs
    for view, base in job.views.items():
        own = specs.get(view, job.live_tables[view].spec)
        newest = job.live_tables[view].newest
        groups = None if newest is None else newest.counts.groups
        sink = None if own.sink is None else own.sink.topic
        found.append(ViewRow(view, base, " ".join(own.query.split()), groups, sink))
    return found


class PendingEffect(NamedTuple):
    """The effect of the pending spec on the job's state."""

    unreadable: str | None  # why nobody can say what the effect is
    evolution: Evolution = Evolution(
        continues=False,
        replays=False,
        begins=False,
        reasons=[],
        added=[],
        dropped=[],
        replay_from=None,
    )
    of_views: bool = False


def _find_evolution(runtime: Runtime, job: JobView) -> PendingEffect | None:
    """Return the effect of the pending spec; None without such a spec, or without a state."""
    if job.record.pending is None:
        return None
    try:
        spec = runtime.jobs.require_pending(job.record)
        found = describe_evolution(runtime.jobs, job.record, spec)
    except Problem as problem:
        return PendingEffect(problem.detail)
    if found is None:
        return None
    return PendingEffect(None, found, bool(job.views or spec.views))


def _draw_dataflow(job: JobView, spec: JobSpec) -> Dataflow | None:
    counters = {} if job.newest is None else job.newest.counters
    return None if job.plan is None else draw_dataflow(spec, job.plan, counters)


def _list_counters(totals: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the counters of tasks, and of exceptional rows and messages, that are not zero."""
    return [(label, totals[name]) for name, label in _COUNTERS.items() if totals.get(name)]


@dataclass(frozen=True, slots=True)
class Freshness:
    """The age of the data that the results show."""

    age: str
    note: str
    seconds: float | None = None


def measure_freshness(job: JobView, now: int) -> Freshness:
    """Return the age of the newest epoch's start; current if no records are waiting."""
    newest = job.newest
    if newest is None or job.committed_ms is None:
        return Freshness(ABSENT, "")
    took = (newest.counts.compute_seconds or 0) * 1_000
    behind = (now - job.committed_ms + took) / 1_000
    if not job.running:
        return Freshness(format_duration(behind), "since the last epoch started", behind)
    if job.lag == 0:
        return Freshness("current", "no records are waiting", 0.0)
    return Freshness(format_duration(behind), "since the newest epoch started", behind)


_AGAIN = "The service starts the job again automatically, after longer and longer pauses."
_DEFAULT = "See the log below. Correct the cause, and start the job again."


def advise(code: str | None, *, retried: bool) -> str:
    """Return what a failure means and what to do; `retried` if the service starts the job again."""
    known = None if code is None else failure_kinds().get(code)
    if known is None:
        return _AGAIN if retried else _DEFAULT
    return f"{known.text} {_AGAIN}" if retried else known.text


_FIRST_EPOCH_SHOWN_MS = 120_000
_LABELS = {
    "process": ("Start the process", "Python and its packages"),
    "topics": ("Check the topics", "a connection to the brokers"),
    "table": ("Open the table", "its newest epoch, and the offsets to start at"),
    "spark": ("Start Spark", "the JVM"),
    "state": ("Open the state", "groups, timers and the source query"),
    SNAPSHOT: ("Read the snapshot", "the rows of the table before its changes"),
    READY: ("Commit the first epoch", "the records since the last one"),
}


@dataclass(frozen=True, slots=True)
class PhaseView:
    label: str
    note: str
    status: str  # done, running or waiting
    seconds: float | None  # since its begin, or how long it took


def list_phases(job: JobView, start: StartProgress | None, now_ms: int) -> list[PhaseView]:
    """Return the phases of an unfinished start; nothing once an epoch was committed.

    began_at ──► process ──► topics ──► table ──► Spark ──► state ──► the first epoch
                    (start.json, written by the job)           (the newest epoch row)
    """
    record = job.record
    if record.began_at is None or record.pid is None:
        return []
    committed = job.committed_ms is not None and job.committed_ms >= record.began_at
    ran = now_ms - record.began_at
    waits = record.actual == Actual.RUNNING and not committed and ran < _FIRST_EPOCH_SHOWN_MS
    if record.actual != Actual.STARTING and not waits:
        return []
    begins, progress = {"process": record.began_at}, dict[str, str | None]()
    if start is not None and start.pid == record.pid:
        begins |= {phase.name: phase.began_at for phase in start.phases}
        progress = {phase.name: phase.progress for phase in start.phases}
    names = ["process", *PHASES]
    if SNAPSHOT in begins:
        names.insert(names.index(READY), SNAPSHOT)
    known = [name for name in names if name in begins]
    views = []
    for name in names:
        label, note = _LABELS[name]
        note = progress.get(name) or note
        if name not in begins:
            views.append(PhaseView(label, note, "waiting", None))
            continue
        later = known[known.index(name) + 1 :]
        end = begins[later[0]] if later else now_ms
        status = "done" if later else "running"
        views.append(PhaseView(label, note, status, max(0, end - begins[name]) / 1_000))
    return views
