"""Gate: the steps of every request before its route, and of every response.

ids      ──► X-Request-Id and traceparent (service.request_ids), in the log too
HEAD     ──► a GET that ends with the headers of its response
queue    ──► wait for a turn, or 503 (service.limits.request_queue); not for health checks
raw path ──► keep the key percent-encoded, so that a / in it does not separate segments
leader   ──► refuse changes if another service leads (service.supervision.leadership)
lookup   ──► answer plain lookups here (service.middleware.lookup)
body     ──► limit its size while it is read
response ──► headers against content sniffing and framing
change   ──► a line of the audit log: who, from where, what, status of the response
read     ──► likewise, if the route sets request.state.reads
"""

from __future__ import annotations

import logging
import re
import time
from contextlib import suppress
from urllib.parse import unquote

from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schemas.limits import LEADER_SILENT_SECONDS_MAX, REQUEST_BYTES_MAX
from service.access.audit_log import READ_METHODS
from service.limits.request_queue import ANONYMOUS, RequestQueue
from service.middleware.lookup import LOOKUP, answer_lookup
from service.problems import Problem
from service.request_ids import enter_request
from service.runtime import Runtime

log = logging.getLogger("service.access")

_KEYED = re.compile(rb"((?:/v1)?/jobs/[^/]+/results/)([^/]+)(/explain|/history)?")
_VIEW = re.compile(rb"((?:/v1)?/jobs/[a-z][a-z0-9_-]*)/views/([a-z][a-z0-9_-]*)((?:/.*)?)")
# They change nothing; the spec editor sends two of them while the user types.
_READS_WITH_BODY = frozenset({"/v1/jobs:validate", "/v1/sql", "/preview", "/from-flink"})
_CHECK = "/quarantine/check"  # of a job's messages
# Of the caller alone, so a service that does not lead takes them too.
_OWN_CHANGES = frozenset({"/v1/session", "/v1/tickets", "/login"})
_HEALTH = frozenset({"/healthz", "/readyz"})
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]


class _HeadersSent(BaseException):
    """HEAD is answered. Not an Exception, so that nobody takes it for a failure of the route."""


class Gate:
    def __init__(self, app: ASGIApp, runtime: Runtime) -> None:
        self._app = app
        self._runtime = runtime
        self._audit_log = runtime.audit_log
        self._counts = runtime.request_counts
        self._queue = RequestQueue(runtime.settings.capacity.requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"]
        scope = _encode_key(_name_view(scope if method != "HEAD" else {**scope, "method": "GET"}))
        own_headers = [*_HEADERS, *enter_request(Headers(scope=scope))]
        began = time.monotonic()
        status, took = 0, 0.0

        async def send_with_headers(message: Message) -> None:
            nonlocal status, took
            if message["type"] == "http.response.start":
                status, took = message["status"], time.monotonic() - began
                # Whoever has the response finds its line in the audit log.
                await self._audit(scope, status)
                names = {name.lower() for name, _ in message["headers"]}
                missing = [header for header in own_headers if header[0] not in names]
                message = {**message, "headers": [*message["headers"], *missing]}
            await send(message)
            if method == "HEAD":
                await send({"type": "http.response.body"})
                raise _HeadersSent

        route: str | None = None
        self._runtime.requests_at_work += 1
        try:
            _require_one_host(scope)
            if scope["path"] not in _HEALTH:
                # Streams have their own limit.
                at_work = self._runtime.requests_at_work - 1 - self._runtime.stream_slots.total
                await self._queue.wait_for_turn(at_work, lambda: self._rank(scope))
            declared = _read_content_length(scope)
            if declared > REQUEST_BYTES_MAX:
                raise _make_size_problem()
            if not self._runtime.leads and _changes(scope) and scope["path"] not in _OWN_CHANGES:
                self._refuse_change(scope)
            answer = answer_lookup(self._runtime, scope)
            if answer is not None:
                route = LOOKUP
                await answer(scope, receive, send_with_headers)
            else:
                await self._app(scope, _limit_body(receive), send_with_headers)
        except _HeadersSent:
            pass
        except Problem as problem:  # from the body's limit, or raised before any route
            if status:
                raise
            with suppress(_HeadersSent):
                await problem.response()(scope, receive, send_with_headers)
        finally:
            self._runtime.requests_at_work -= 1
            route = route or getattr(scope.get("route"), "path", None)
            seconds = took if status else time.monotonic() - began
            self._counts.count(route, method, status, seconds)
            if not status:
                await self._audit(scope, status)
            if log.isEnabledFor(logging.INFO):
                # Without the query, which may contain data of users.
                log.info(
                    "%s %s %d %.1f ms",
                    method,
                    _make_printable(scope["path"]),
                    status,
                    (time.monotonic() - began) * 1_000,
                )

    async def _audit(self, scope: Scope, status: int) -> None:
        """Write the line of a change or an audited read; anonymous requests are only counted."""
        state = scope.get("state", {})
        if "role" in state and (_changes(scope) or "reads" in state):
            method, path = scope["method"][:20], _make_printable(scope["path"])
            address = scope["client"][0] if scope.get("client") else ""  # perhaps of a proxy
            line = (state["who"], state["role"], method, path, status, address)
            await run_in_threadpool(self._audit_log.note, *line, state.get("reads"))

    def _refuse_change(self, scope: Scope) -> None:
        """Name the leader to whoever has a token; the route refuses all others."""
        if self._rank(scope) == ANONYMOUS or self._runtime.find_leader is None:
            return
        leader = self._runtime.find_leader()
        detail = f"this service only reads; {leader or 'no service'} leads"
        retry = {"Retry-After": f"{LEADER_SILENT_SECONDS_MAX:.0f}"}
        raise Problem("not-the-leader", detail, headers=retry, leader=leader)

    def _rank(self, scope: Scope) -> int:
        role = self._runtime.access.find_likely_role(Request(scope))
        return ANONYMOUS if role is None else int(role)


def _changes(scope: Scope) -> bool:
    path = scope["path"]
    is_read = path in _READS_WITH_BODY or path.endswith(_CHECK)
    return scope["method"] not in READ_METHODS and not is_read


def _name_view(scope: Scope) -> Scope:
    """Rewrite the address of a view to that of a job named JOB.VIEW."""
    raw: bytes = scope.get("raw_path") or b""
    found = _VIEW.fullmatch(raw.split(b"?")[0])
    if found is None:
        return scope
    raw = found[1] + b"." + found[2] + found[3]
    return {**scope, "raw_path": raw, "path": unquote(raw.decode("latin-1"))}


def _encode_key(scope: Scope) -> Scope:
    raw = scope.get("raw_path") or b""
    found = _KEYED.fullmatch(raw.split(b"?")[0])
    if found is None:
        return scope
    return {**scope, "path": b"".join(part or b"" for part in found.groups()).decode("latin-1")}


def _make_printable(path: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in path[:300])


def _require_one_host(scope: Scope) -> None:
    """Refuse two Host headers: a proxy and the service could read different ones."""
    hosts = sum(name == b"host" for name, _ in scope["headers"])
    if hosts > 1 or (hosts == 0 and scope["http_version"] != "1.0"):
        raise Problem("host-refused", "send exactly one header Host", status=400)


def _read_content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


def _make_size_problem() -> Problem:
    detail = f"a request body must not exceed {REQUEST_BYTES_MAX} bytes"
    return Problem("body-too-large", detail, headers={"Connection": "close"})


def _limit_body(receive: Receive) -> Receive:
    """Raise a Problem once the body exceeds its limit."""
    taken = 0

    async def receive_limited() -> Message:
        nonlocal taken
        message = await receive()
        if message["type"] == "http.request":
            taken += len(message.get("body", b""))
            if taken > REQUEST_BYTES_MAX:
                raise _make_size_problem()
        return message

    return receive_limited
