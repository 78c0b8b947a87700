"""The quarantine of a job as pages: what was refused and why, and sending it again."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from jobs.core.job.refused_message import groups_of
from schemas.limits import CONSOLE_AFFECTED_GROUPS, CONSOLE_QUARANTINE_ROWS, CONSOLE_RAW_BYTES
from service.console import words
from service.console.job_view import followed_job
from service.console.page import PageRoute, page
from service.console.rows import text_of
from service.console.visitor import visitor_of
from service.live.follower import Follower
from service.routes.answering import read_table
from service.runtime import Runtime, runtime_of
from service.supervision import operations
from service.table.quarantine import message, newest_messages, place_of, with_replay

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_PREVIEW_CHARACTERS = 160
_OPERATIONS_LOOKED_AT = 1_000
_HEX_BYTES_A_LINE = 16
_PRINTABLE = range(0x20, 0x7F)


@router.get("/jobs/{name}/quarantine")
async def quarantine_page(
    request: Request, name: str, before: Annotated[str | None, Query(max_length=400)] = None
) -> Response:
    """Messages that a job did not take, the newest first."""
    visitor = visitor_of(request)
    runtime = runtime_of(request)
    follower, job = await followed_job(request, name)
    if job.newest is None:
        return await page(request, visitor, "results_none.html", job=job, tab="quarantine")
    place = place_of(before) if before else None
    found = await run_in_threadpool(
        read_table, runtime, follower,
        lambda table: newest_messages(table, place, CONSOLE_QUARANTINE_ROWS + 1),
    )  # fmt: skip
    shown = found[:CONSOLE_QUARANTINE_ROWS]
    more = shown[-1]["id"] if len(found) > len(shown) else None
    messages = [_row(with_replay(follower.places, each)) for each in shown]
    return await page(
        request, visitor, "quarantine.html",
        job=job, tab="quarantine", messages=messages, before=before, more=more,
        on_error=str(follower.spec.on_error),
    )  # fmt: skip


def _row(found: dict[str, Any]) -> dict[str, Any]:
    text = found.get("raw")
    if text is None and "raw_base64" in found:
        preview = base64.b64decode(found["raw_base64"])[: _PREVIEW_CHARACTERS // 3].hex(" ")
    else:
        preview = text or ""
    cut = found["cut"] or len(preview) > _PREVIEW_CHARACTERS
    return {
        **found,
        "preview": preview[:_PREVIEW_CHARACTERS],
        "previewed": "whole" if not cut else "begun",
        "binary": "raw_base64" in found,
        "empty": text is None and "raw_base64" not in found,
    }


@router.get("/jobs/{name}/quarantine/{id}")
async def message_page(request: Request, name: str, id: str) -> Response:
    """One message, whole, with what can be done about it."""
    visitor = visitor_of(request)
    runtime = runtime_of(request)
    follower, job = await followed_job(request, name)
    place = place_of(id)
    found = await run_in_threadpool(
        read_table, runtime, follower, lambda table: message(table, place)
    )
    shown = await run_in_threadpool(_message, runtime, follower, found)
    return await page(request, visitor, "message.html", job=job, tab="quarantine", **shown)


def _message(runtime: Runtime, follower: Follower, found: dict[str, Any]) -> dict[str, Any]:
    told = with_replay(follower.places, found)
    raw, binary = told.get("raw"), told.get("raw_base64")
    dump = None if binary is None else hex_dump(base64.b64decode(binary)[:CONSOLE_RAW_BYTES])
    text = None if raw is None else raw[:CONSOLE_RAW_BYTES]
    sendings = _sendings(runtime, follower.places.name, told["id"])
    return {
        "message": told,
        "text": text,
        "dump": dump,
        "left_out": _left_out(raw, binary),
        "sendings": sendings,
        "groups": None if text is None or told["cut"] else _groups(follower, text),
        "deduped": bool(follower.shape.plan.primary_key),
        "going": any(each["state"] in ("WAITING", "RUNNING") for each in sendings),
        "fixable": raw is not None and not told["cut"] and len(raw) <= CONSOLE_RAW_BYTES,
    }


def _groups(follower: Follower, text: str) -> list[str] | None:
    """Return the groups that lack the message, as text; None if it cannot be read that far."""
    groups = groups_of(follower.spec, follower.shape.plan, text.encode())
    if groups is None:
        return None
    return [
        ", ".join(f"{name} = {text_of(value)}" for name, value in group.items())
        for group in groups[:CONSOLE_AFFECTED_GROUPS]
    ]


def _left_out(raw: str | None, binary: str | None) -> str:
    if raw is not None and len(raw) > CONSOLE_RAW_BYTES:
        return words.plural(len(raw) - CONSOLE_RAW_BYTES, "character")
    if binary is not None:
        rest = len(base64.b64decode(binary)) - CONSOLE_RAW_BYTES
        return words.size(rest) if rest > 0 else ""
    return ""


def _sendings(runtime: Runtime, job: str, identity: str) -> list[dict[str, Any]]:
    """What was asked for about this message, the newest first."""
    asked = runtime.register.operations(job, _OPERATIONS_LOOKED_AT)
    told = (operations.described(each) for each in asked if each.kind == "quarantine")
    return [each for each in told if each["arguments"].get("id") == identity]


def hex_dump(data: bytes) -> str:
    """Offset, bytes, and what of them is text."""
    return "\n".join(
        _hex_line(at, data[at : at + _HEX_BYTES_A_LINE])
        for at in range(0, len(data), _HEX_BYTES_A_LINE)
    )


def _hex_line(at: int, piece: Sequence[int]) -> str:
    codes = " ".join(f"{byte:02x}" for byte in piece)
    text = "".join(chr(byte) if byte in _PRINTABLE else "." for byte in piece)
    return f"{at:08x}  {codes:<{3 * _HEX_BYTES_A_LINE}} {text}"
