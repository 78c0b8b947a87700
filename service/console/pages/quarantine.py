"""Pages of a job's quarantine: its messages with their reasons, and resending them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, NamedTuple
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from jobs.core.formats.registry import MessageDecoder
from jobs.core.job.refused_message import groups_of, job_decoders
from jobs.core.plan.tree import Plan
from jobs.reading.quarantine import (
    count_reasons,
    list_messages,
    read_message,
    summarize_reason,
)
from jobs.reading.version import TableVersion, at_newest
from jobs.topics.schema_registry import find_by, find_refusal
from schemas.directory.quarantine import Quarantined, QuarantineRow, Resent, read_binary
from schemas.documents.answers import Operation
from schemas.limits import CONSOLE_AFFECTED_GROUPS, CONSOLE_QUARANTINE_ROWS, CONSOLE_RAW_BYTES
from schemas.spec.connections import Connections
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from service.access.tokens import Role
from service.console.formatting import count_of, format_size
from service.console.job_view import find_followed_job
from service.console.page import HEADERS, PageRoute, render_page
from service.console.rows import format_value
from service.console.visitor import require_visitor
from service.live.table import LiveTable
from service.problems import Problem
from service.routes.answering import parse_message
from service.runtime import Runtime, runtime_of
from service.supervision import operations

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_PREVIEW_CHARACTERS = 160
_REASONS_SHOWN = 12
_OPERATIONS_SEARCHED = 1_000
_HEX_BYTES_PER_LINE = 16
_PRINTABLE = range(0x20, 0x7F)


@router.get("/jobs/{name}/quarantine")
async def quarantine_page(
    request: Request,
    name: str,
    before: Annotated[str | None, Query(max_length=400)] = None,
    reason: Annotated[str, Query(max_length=2_000)] = "",
    find: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """List the messages of the quarantine, newest first; `reason` is a summarized one."""
    visitor = require_visitor(request)
    runtime = runtime_of(request)
    live_table, job = await find_followed_job(request, name)
    if job.newest is None:
        return await render_page(
            request, visitor, "results/results_none.html", job=job, tab="quarantine"
        )
    position = parse_message(before) if before else None

    def read(table: TableVersion) -> tuple[Counter[str], list[Quarantined]]:
        text = find.strip().lower()
        matches, count = partial(_matches, reason, text), CONSOLE_QUARANTINE_ROWS + 1
        return (
            count_reasons(table),
            list_messages(table, position, count, matches, newest_first=True, by_bytes=bool(text)),
        )

    reasons, found = await runtime.read_table(live_table, read)
    shown = found[:CONSOLE_QUARANTINE_ROWS]
    more = shown[-1].id if len(found) > len(shown) else None
    messages = [_Row.of(each.with_replay(live_table.paths.replayed)) for each in shown]
    return await render_page(
        request,
        visitor,
        "quarantine/list.html",
        job=job,
        tab="quarantine",
        messages=messages,
        reasons=reasons.most_common(_REASONS_SHOWN),
        kinds=len(reasons),
        total=reasons.total(),
        reason=reason,
        find=find,
        before=before,
        more=None if more is None else _encode(reason, find, more),
        newest=_encode(reason, find),
        encode=_encode,
        on_error=str(live_table.spec.on_error),
    )


def _matches(reason: str, text: str, row: QuarantineRow) -> bool:
    if reason and summarize_reason(row.reason) != reason:
        return False
    if not text:
        return True
    raw = (row.raw or b"").decode("utf-8", "replace")
    return any(text in part.lower() for part in (row.reason, row.path or "", raw))


def _encode(reason: str, find: str, before: str = "") -> str:
    """Return the query of a page of the list."""
    wanted = {"reason": reason, "find": find, "before": before}
    return "?" + urlencode({name: value for name, value in wanted.items() if value})


@router.post("/jobs/{name}/quarantine/check")
async def check_messages(request: Request, name: str) -> Response:
    """Return which messages the job would process now, with the reasons of the others."""
    require_visitor(request, Role.ADMIN)
    live_table, job = await find_followed_job(request, name)
    try:
        names = msgspec.json.decode(await request.body(), type=list[str])
    except msgspec.MsgspecError:
        raise Problem("body-invalid", "a list of message ids is expected") from None
    wanted = [parse_message(each) for each in names[:CONSOLE_QUARANTINE_ROWS]]

    def read(table: TableVersion) -> list[Quarantined]:
        return [read_message(table, each) for each in wanted]

    runtime = runtime_of(request)
    found = await runtime.read_table(live_table, read)
    checked = await runtime.attempts.run(
        partial(_check_messages, job.spec, found, runtime.settings.connections)
    )
    return Response(msgspec.json.encode(checked), 200, HEADERS, "application/json")


def _check_messages(
    spec: JobSpec, found: Sequence[Quarantined], connections: Connections
) -> list[dict[str, str | None]]:
    """Return why the job would not process messages; it runs in a child process."""
    find, topics = partial(find_by, connections), {each.topic for each in found}
    decoders = {topic: job_decoders(spec, topic, find) for topic in topics}
    return [
        {"id": each.id, "refused": _check_message(decoders[each.topic], each)} for each in found
    ]


def _check_message(decoders: Mapping[str, MessageDecoder], found: Quarantined) -> str | None:
    if found.cut:
        return "only its beginning was kept; resend it by itself"
    binary = read_binary(found)
    value = (found.text or "").encode() if binary is None else binary
    refused = find_refusal(decoders, value)
    return None if refused is None else f"{refused[0]} ({refused[1]})"


class _Row(NamedTuple):
    """A message of the list, with the start of its content; None if it has none."""

    message: Quarantined
    preview: str | None

    @classmethod
    def of(cls, message: Quarantined) -> _Row:
        text, binary = message.text, read_binary(message)
        if binary is not None:
            text = binary[: _PREVIEW_CHARACTERS // 3].hex(" ")
        return cls(message, None if text is None else text[:_PREVIEW_CHARACTERS])


@router.get("/jobs/{name}/quarantine/{id}")
async def message_page(request: Request, name: str, id: str) -> Response:
    """Show one message with its affected groups and the ways to resend it."""
    visitor = require_visitor(request)
    runtime = runtime_of(request)
    live_table, job = await find_followed_job(request, name)
    position = parse_message(id)
    found = await runtime.read_table(live_table, lambda table: read_message(table, position))
    shown = await run_in_threadpool(_describe, runtime, live_table, found)
    groups = None
    if shown.text is not None and not found.cut:
        with suppress(Problem):  # it takes too much time or memory
            spec, plan = live_table.spec, live_table.shape.plan
            groups = await runtime.attempts.run(partial(_find_groups, spec, plan, shown.text))
    return await render_page(
        request,
        visitor,
        "quarantine/message.html",
        job=job,
        tab="quarantine",
        groups=groups,
        **shown._asdict(),
    )


class _Shown(NamedTuple):
    """A message as its page shows it."""

    message: Quarantined
    text: str | None
    dump: str | None
    omitted: str
    resends: list[Operation]
    counted: int | None  # the epoch that read it after it was resent
    deduped: bool
    resending: bool  # the page refreshes itself until it can name the epoch that read it
    fixable: bool


def _describe(runtime: Runtime, live_table: LiveTable, stored: Quarantined) -> _Shown:
    found = stored.with_replay(live_table.paths.replayed)
    text, binary = found.text, read_binary(found)
    resends = _find_resends(runtime, live_table.paths.name, found.id)
    sending = any(each.state in ("WAITING", "RUNNING") for each in resends)
    return _Shown(
        message=found,
        text=None if text is None else text[:CONSOLE_RAW_BYTES],
        dump=None if binary is None else dump_hex(binary[:CONSOLE_RAW_BYTES]),
        omitted=_describe_omitted(text, binary),
        resends=resends,
        counted=_find_counting_epoch(live_table, found.replayed),
        deduped=live_table.spec.dedupes(found.topic),
        resending=sending or _is_unread(live_table, found.replayed),
        fixable=text is not None and not found.cut and len(text) <= CONSOLE_RAW_BYTES,
    )


def _is_unread(live_table: LiveTable, resent: Resent | None) -> bool:
    """Return whether a resent message is in the topic, and the job has yet to read it."""
    if resent is None or resent.offset is None or live_table.newest is None:
        return False
    offsets = live_table.newest.offsets.get(resent.topic, {})
    return offsets.get(str(resent.partition), 0) <= resent.offset


def _find_counting_epoch(live_table: LiveTable, resent: Resent | None) -> int | None:
    """Return the epoch that read a resent message; None if none has yet, or it is forgotten."""
    if resent is None or resent.offset is None:
        return None
    before: EpochRow | None = None
    for row in at_newest(live_table.paths.table, lambda table: table.epochs()):
        if row.offsets.get(resent.topic, {}).get(str(resent.partition), 0) > resent.offset:
            return row.epoch if before is not None else None
        before = row
    return None


def _find_groups(spec: JobSpec, plan: Plan, text: str) -> list[str] | None:
    """Return the groups whose results miss the message; None if it cannot be decoded.

    It runs in a child process.
    """
    groups = groups_of(spec, plan, text.encode())
    if groups is None:
        return None
    return [
        ", ".join(f"{name} = {format_value(value)}" for name, value in group.items())
        for group in groups[:CONSOLE_AFFECTED_GROUPS]
    ]


def _describe_omitted(raw: str | None, binary: bytes | None) -> str:
    if raw is not None and len(raw) > CONSOLE_RAW_BYTES:
        return count_of(len(raw) - CONSOLE_RAW_BYTES, "character")
    if binary is not None:
        rest = len(binary) - CONSOLE_RAW_BYTES
        return format_size(rest) if rest > 0 else ""
    return ""


def _find_resends(runtime: Runtime, job: str, identity: str) -> list[Operation]:
    """Return the operations that resend this message, newest first."""
    records = runtime.register.list_operations(job, _OPERATIONS_SEARCHED)
    resends = (operations.describe_operation(each) for each in records if each.kind == "quarantine")
    return [
        _describe_resend(each, identity)
        for each in resends
        if identity in each.arguments.get("ids", [each.arguments.get("id")])
    ]


def _describe_resend(operation: Operation, identity: str) -> Operation:
    """Return an operation as it ended for one message: others of it may have been sent."""
    refused = (operation.result or {}).get("refused", {})
    if identity not in refused:
        return operation
    return msgspec.structs.replace(operation, state="FAILED", reason=refused[identity])


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
