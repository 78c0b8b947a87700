"""Audits of a job as pages, and whatever else it was asked to do, with what came of it."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from schemas.limits import CONSOLE_AUDITS
from service.console.job_view import JobView, job_view
from service.console.page import PageRoute, page
from service.console.rows import key_label, key_part, ranges_told, text_of
from service.console.visitor import visitor_of
from service.problems import Problem
from service.runtime import runtime_of
from service.supervision import operations

router = APIRouter(include_in_schema=False, route_class=PageRoute)

VERDICTS = {
    "equal": ("good", "Equal", "Every group is what the topic makes of it."),
    "different": (
        "bad", "Different",
        "The table says something else than a recomputation from the topic. Please report it.",
    ),
    "undecided": (
        "warn", "Undecided",
        "There are differences, and the source has taken away rows that it never gave. What "
        "becomes of their groups depends on the bundles, which the topic does not tell.",
    ),
}  # fmt: skip
ODD = {
    "dropped_retractions": "retractions of rows that were never given, dropped",
    "unmatched_retractions": "retractions of rows that were never given, applied",
    "keys_in_several_partitions": "rows whose key came in several partitions",
}
TONES = {"DONE": "good", "FAILED": "bad", "RUNNING": "busy", "WAITING": "quiet"}


@router.get("/jobs/{name}/audits")
async def audits_page(request: Request, name: str) -> Response:
    """What a job was asked to do, the newest first; audits above all."""
    visitor = visitor_of(request)
    runtime = runtime_of(request)
    job = job_view(request, name)
    asked = runtime.register.operations(name, CONSOLE_AUDITS)
    told = [operations.described(each) for each in asked]
    return await page(
        request, visitor, "audits.html",
        job=job, tab="audits", tones=TONES, verdicts=VERDICTS,
        audits=[each for each in told if each["kind"] == "audit"],
        others=[each for each in told if each["kind"] != "audit"],
    )  # fmt: skip


@router.get("/jobs/{name}/audits/{id}")
async def operation_page(request: Request, name: str, id: str) -> Response:
    """One audit with its report; or another operation with what came of it."""
    visitor = visitor_of(request)
    job = job_view(request, name)
    record = runtime_of(request).register.operation(id)
    if record is None or record.job != name:
        raise Problem("operation-unknown", 404, f"job {name!r} was not asked for that")
    told = operations.described(record)
    result = told["result"] or {}
    report = _report(job, result) if record.kind == "audit" and "verdict" in result else None
    return await page(
        request, visitor, "operation.html",
        job=job, tab="audits", operation=told, tones=TONES, report=report,
        result=json.dumps(told["result"], indent=2, ensure_ascii=False),
    )  # fmt: skip


def _report(job: JobView, result: dict[str, Any]) -> dict[str, Any]:
    tone, verdict, meaning = VERDICTS[result["verdict"]]
    return {
        **result,
        "tone": tone,
        "verdict": verdict,
        "meaning": meaning,
        "read": ranges_told(result["offsets"]),
        "odd": [(said, result["odd"][name]) for name, said in ODD.items() if name in result["odd"]],
        "differences": [_difference(each) for each in result["differences"]],
        "newer": None if job.newest is None else job.newest.epoch - result["epoch"],
    }


def _difference(told: dict[str, Any]) -> dict[str, Any]:
    """A group, and each column as the table has it and as it was recomputed."""
    table, recomputed = told["table"], told["recomputed"]
    names = [name for name in table or recomputed or {} if name not in told["group"]]

    def value(row: dict[str, Any] | None, name: str) -> str:
        if row is None:
            return "no such group"
        return "NULL" if row[name] is None else text_of(row[name])

    return {
        "label": key_label(told["group"]),
        "link": key_part(told["group"]),
        "columns": [
            {
                "name": name,
                "table": value(table, name),
                "recomputed": value(recomputed, name),
                "differs": table is None or recomputed is None or table[name] != recomputed[name],
            }
            for name in names
        ],
    }
