"""Pages of a job's quarantine: its messages with their reasons, and resending them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from jobs.core.job.refused_message import groups_of
from schemas.limits import CONSOLE_AFFECTED_GROUPS, CONSOLE_QUARANTINE_ROWS, CONSOLE_RAW_BYTES
from service.console.formatting import count_of, format_size
from service.console.job_view import find_followed_job
from service.console.page import PageRoute, render_page
from service.console.rows import format_value
from service.console.visitor import require_visitor
from service.live.follower import Follower
from service.runtime import Runtime, runtime_of
from service.supervision import operations
from service.table.quarantine import (
    add_replay,
    list_newest_messages,
    parse_message_id,
    read_message,
)

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_PREVIEW_CHARACTERS = 160
_OPERATIONS_SEARCHED = 1_000
_HEX_BYTES_PER_LINE = 16
_PRINTABLE = range(0x20, 0x7F)


@router.get("/jobs/{name}/quarantine")
async def quarantine_page(
    request: Request, name: str, before: Annotated[str | None, Query(max_length=400)] = None
) -> Response:
    """List the messages of the quarantine, newest first."""
    visitor = require_visitor(request)
    runtime = runtime_of(request)
    follower, job = await find_followed_job(request, name)
    if job.newest is None:
        return await render_page(
            request, visitor, "results/results_none.html", job=job, tab="quarantine"
        )
    position = parse_message_id(before) if before else None
    found = await run_in_threadpool(
        runtime.table_reads.read,
        follower,
        lambda table: list_newest_messages(table, position, CONSOLE_QUARANTINE_ROWS + 1),
    )
    shown = found[:CONSOLE_QUARANTINE_ROWS]
    more = shown[-1]["id"] if len(found) > len(shown) else None
    messages = [_make_row(add_replay(follower.paths, each)) for each in shown]
    return await render_page(
        request,
        visitor,
        "quarantine/list.html",
        job=job,
        tab="quarantine",
        messages=messages,
        before=before,
        more=more,
        on_error=str(follower.spec.on_error),
    )


def _make_row(found: dict[str, Any]) -> dict[str, Any]:
    text = found.get("raw")
    if text is None and "raw_base64" in found:
        preview = base64.b64decode(found["raw_base64"])[: _PREVIEW_CHARACTERS // 3].hex(" ")
    else:
        preview = text or ""
    truncated = found["cut"] or len(preview) > _PREVIEW_CHARACTERS
    return {
        **found,
        "preview": preview[:_PREVIEW_CHARACTERS],
        "truncated": truncated,
        "binary": "raw_base64" in found,
        "empty": text is None and "raw_base64" not in found,
    }


@router.get("/jobs/{name}/quarantine/{id}")
async def message_page(request: Request, name: str, id: str) -> Response:
    """Show one message with its affected groups and the ways to resend it."""
    visitor = require_visitor(request)
    runtime = runtime_of(request)
    follower, job = await find_followed_job(request, name)
    position = parse_message_id(id)
    found = await run_in_threadpool(
        runtime.table_reads.read, follower, lambda table: read_message(table, position)
    )
    shown = await run_in_threadpool(_describe, runtime, follower, found)
    return await render_page(
        request, visitor, "quarantine/message.html", job=job, tab="quarantine", **shown
    )


def _describe(runtime: Runtime, follower: Follower, stored: dict[str, Any]) -> dict[str, Any]:
    found = add_replay(follower.paths, stored)
    raw, binary = found.get("raw"), found.get("raw_base64")
    dump = None if binary is None else dump_hex(base64.b64decode(binary)[:CONSOLE_RAW_BYTES])
    text = None if raw is None else raw[:CONSOLE_RAW_BYTES]
    resends = _find_resends(runtime, follower.paths.name, found["id"])
    return {
        "message": found,
        "text": text,
        "dump": dump,
        "omitted": _describe_omitted(raw, binary),
        "resends": resends,
        "groups": None if text is None or found["cut"] else _find_groups(follower, text),
        "deduped": bool(follower.shape.plan.primary_key),
        "resending": any(each["state"] in ("WAITING", "RUNNING") for each in resends),
        "fixable": raw is not None and not found["cut"] and len(raw) <= CONSOLE_RAW_BYTES,
    }


def _find_groups(follower: Follower, text: str) -> list[str] | None:
    """Return the groups whose results miss the message; None if it cannot be decoded."""
    groups = groups_of(follower.spec, follower.shape.plan, text.encode())
    if groups is None:
        return None
    return [
        ", ".join(f"{name} = {format_value(value)}" for name, value in group.items())
        for group in groups[:CONSOLE_AFFECTED_GROUPS]
    ]


def _describe_omitted(raw: str | None, binary: str | None) -> str:
    if raw is not None and len(raw) > CONSOLE_RAW_BYTES:
        return count_of(len(raw) - CONSOLE_RAW_BYTES, "character")
    if binary is not None:
        rest = len(base64.b64decode(binary)) - CONSOLE_RAW_BYTES
        return format_size(rest) if rest > 0 else ""
    return ""


def _find_resends(runtime: Runtime, job: str, identity: str) -> list[dict[str, Any]]:
    """Return the operations that resend this message, newest first."""
    records = runtime.register.list_operations(job, _OPERATIONS_SEARCHED)
    resends = (operations.describe_operation(each) for each in records if each.kind == "quarantine")
    return [each for each in resends if each["arguments"].get("id") == identity]


def dump_hex(data: bytes) -> str:
    """Return lines with an offset, bytes in hexadecimal, and their printable characters."""
    return "\n".join(
        _dump_line(at, data[at : at + _HEX_BYTES_PER_LINE])
        for at in range(0, len(data), _HEX_BYTES_PER_LINE)
    )


def _dump_line(at: int, piece: Sequence[int]) -> str:
    codes = " ".join(f"{byte:02x}" for byte in piece)
    text = "".join(chr(byte) if byte in _PRINTABLE else "." for byte in piece)
    return f"{at:08x}  {codes:<{3 * _HEX_BYTES_PER_LINE}} {text}"
