"""Pages of what a job did and what was done to it: operations, failures, the audit log."""

from __future__ import annotations

import json
from collections.abc import Container
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from jobs.core.explain.extreme_changes import source_text
from schemas.documents.answers import Operation
from schemas.limits import CONSOLE_AUDIT_LOG_LINES, CONSOLE_AUDITS, CONSOLE_FAILURES
from schemas.types.json_types import JsonObject
from schemas.types.moments import now_ms
from service.access.tokens import Role
from service.console.formatting import count_of
from service.console.job_view import JobView, find_job
from service.console.page import PageRoute, render_page
from service.console.rows import encode_key, format_value, label_key
from service.console.visitor import require_visitor
from service.problems import Problem
from service.runtime import runtime_of
from service.supervision import operations
from service.supervision.register import OperationRecord

router = APIRouter(include_in_schema=False, route_class=PageRoute)

VERDICTS = {
    "equal": ("good", "Equal", "The table equals the recomputation from the topic in every group."),
    "different": (
        "bad",
        "Different",
        "The table differs from a recomputation from the topic. Please report this.",
    ),
    "undecided": (
        "warn",
        "Undecided",
        "The source has broken its rules (below), so the topic alone does not decide the results "
        "of some groups.",
    ),
}
ANOMALIES = {
    "missing_rows": "rows retracted that the topic does not have",
    "source_repeats": "times the source began to repeat itself, so rows count twice",
    "repeated_messages": "messages that say what an earlier one does, so rows may count twice",
    "dropped_retractions": "retractions before their rows, dropped",
    "keys_in_several_partitions": "rows whose key is in several partitions",
    "ambiguous_keys": "rows whose key has changes that may be repeats, or from before a TRUNCATE",
}
# As pages name the kinds of operations that have a word of their own in the API.
OPERATION_NAMES = {
    "rewind": "restore",
    "evolve": "change query",
    "offsets": "move offsets",
    "quarantine": "resend message",
}
TONES = {"DONE": "good", "FAILED": "bad", "RUNNING": "busy", "WAITING": "quiet"}


@router.get("/jobs/{name}/activity")
async def activity_page(request: Request, name: str) -> Response:
    """Show the operations and the failures of a job, newest first."""
    visitor = require_visitor(request)
    runtime = runtime_of(request)
    job = find_job(request, name)
    records = runtime.register.list_operations(job.name, CONSOLE_AUDITS)
    failures = runtime.register.list_failures(job.name, CONSOLE_FAILURES)
    return await render_page(
        request,
        visitor,
        "operations/activity.html",
        job=job,
        tab="activity",
        operations=[ActivityRow.of(each) for each in records],
        failures=failures,
        labels=OPERATION_NAMES,
    )


class ActivityRow(NamedTuple):
    """An operation as a row: what it is, how far it is, and its outcome in a line."""

    operation: Operation
    label: str
    details: str
    tone: str
    running: bool
    requested_ms: int
    seconds: float | None
    verdict: tuple[str, str, str] | None

    @classmethod
    def of(cls, record: OperationRecord) -> ActivityRow:
        operation = operations.describe_operation(record)
        ended = record.ended_at if record.ended_at is not None else now_ms()
        return cls(
            operation,
            label=OPERATION_NAMES.get(record.kind, record.kind),
            details=_list_details(operation.arguments),
            tone=TONES[record.state],
            running=record.state in ("WAITING", "RUNNING"),
            requested_ms=record.created_at,
            seconds=None if record.began_at is None else (ended - record.began_at) / 1_000,
            verdict=VERDICTS.get(str((operation.result or {}).get("verdict"))),
        )


def _list_details(arguments: JsonObject) -> str:
    """Return what an operation is about, from its arguments."""
    named = (
        ("view", "view {}"),
        ("to", "to {}"),
        ("name", "as {}"),
        ("state", "state: {}"),
        ("id", "{}"),
    )
    details = [text.format(arguments[name]) for name, text in named if arguments.get(name)]
    if arguments.get("ids"):
        details.append(count_of(len(arguments["ids"]), "message"))
    return ", ".join(details)


@router.get("/jobs/{name}/activity/{id}")
async def operation_page(request: Request, name: str, id: str) -> Response:
    """Show one operation with its result; of an audit, its report."""
    visitor = require_visitor(request)
    job = find_job(request, name)
    record = runtime_of(request).register.find_operation(id)
    if record is None or record.job != job.name:
        raise Problem("operation-unknown", f"job {job.name!r} has no such operation")
    row = ActivityRow.of(record)
    operation = row.operation
    result = operation.result or {}
    audited = record.kind == "audit" and "verdict" in result
    return await render_page(
        request,
        visitor,
        "operations/operation.html",
        job=job,
        tab="activity",
        operation=operation,
        seconds=row.seconds,
        reports=_make_reports(job, operation.arguments, result) if audited else [],
        operation_names=OPERATION_NAMES,
        result=json.dumps(operation.result, indent=2, ensure_ascii=False),
    )


def _make_reports(job: JobView, arguments: JsonObject, result: JsonObject) -> list[_Report]:
    """Return the report of an audit; of a job with several views, that of each view."""
    if "views" not in result:
        return [_make_report(job, arguments.get("view", ""), result)]
    return [_make_report(job, view, report) for view, report in result["views"].items()]


class _Column(NamedTuple):
    """A column of a differing group, in the table and in the recomputation."""

    name: str
    table: str
    recomputed: str
    differs: bool


class _Difference(NamedTuple):
    label: str
    link: str
    columns: list[_Column]


@dataclass(frozen=True, slots=True)
class _Report:
    """The report of the audit of one view."""

    view: str
    tone: str
    verdict: str
    meaning: str
    audit: JsonObject | None = None  # None if the results of this view cannot be recomputed
    results: str = ""  # the page with its results
    read: str = ""
    anomalies: tuple[tuple[str, int], ...] = ()
    differences: tuple[_Difference, ...] = ()
    newer: int | None = None


def _make_report(job: JobView, view: str, audit: JsonObject) -> _Report:
    tone, verdict, meaning = VERDICTS[audit["verdict"]]
    if "reason" in audit:
        return _Report(view, tone, verdict, audit["reason"])
    odd = audit["odd"]
    return _Report(
        view,
        tone,
        verdict,
        meaning,
        audit,
        results=f"/jobs/{job.name}{f'/views/{view}' if view else ''}/results",
        read=source_text(audit["offsets"]),
        anomalies=tuple((text, odd[name]) for name, text in ANOMALIES.items() if name in odd),
        differences=tuple(_make_difference(each) for each in audit["differences"]),
        newer=None if job.newest is None else job.newest.epoch - audit["epoch"],
    )


def _make_difference(group: JsonObject) -> _Difference:
    """Return a group with each column's value in the table and in the recomputation."""
    table, recomputed = group["table"], group["recomputed"]

    def format_column(row: JsonObject | None, name: str) -> str:
        if row is None:
            return "no such group"
        return "NULL" if row[name] is None else format_value(row[name])

    return _Difference(
        label_key(group["group"]),
        encode_key(group["group"]),
        [
            _Column(
                name,
                format_column(table, name),
                format_column(recomputed, name),
                table is None or recomputed is None or table[name] != recomputed[name],
            )
            for name in table or recomputed or {}
            if name not in group["group"]
        ],
    )


@router.get("/audit-log")
async def audit_log_page(
    request: Request, job: Annotated[str, Query(max_length=100)] = ""
) -> Response:
    """Show the newest lines, of one job if it is given."""
    visitor = require_visitor(request, Role.ADMIN)
    runtime = runtime_of(request)
    lines = await run_in_threadpool(runtime.audit_log.newest, CONSOLE_AUDIT_LOG_LINES, job.strip())
    jobs = [each.name for each in runtime.jobs.list_records()]
    return await render_page(
        request,
        visitor,
        "audit_log.html",
        lines=[(each, _find_job(each.path, jobs)) for each in lines],
        job=job.strip(),
        jobs=jobs,
    )


def _find_job(path: str, jobs: Container[str]) -> str | None:
    """Return the job of a request's path, if it is still there."""
    parts = path.split("/")
    job = parts[3].partition(".")[0] if len(parts) > 3 else ""  # JOB.VIEW is a view
    return job if parts[:3] == ["", "v1", "jobs"] and job in jobs else None
