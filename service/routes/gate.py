"""Gate: what every request passes before it is routed, and every answer on its way out.

turn     ──► when it is its turn, or 503 (service.limits.request_queue); health has none
raw path ──► a key in it stays percent-encoded, so that a / in it is no separator
lookup   ──► answered here, where it is plain (service.routes.lookup)
body     ──► bounded, while it is read
answer   ──► headers that keep browsers from guessing and storing
change   ──► a line of the trail: who, from where, what, how it was answered
"""

from __future__ import annotations

import logging
import re
import time

from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schemas.limits import REQUEST_BYTES_MAX
from service.access.audit_log import LOOKS
from service.limits.request_queue import STRANGER, Turns
from service.problems import Problem
from service.routes.lookup import LOOKUP, looked_up
from service.runtime import Runtime

log = logging.getLogger("service.access")

_KEYED = re.compile(rb"((?:/v1)?/jobs/[^/]+/results/)([^/]+)(/explain|/history)?")
# They change nothing, and an editor asks them while somebody writes.
_LOOKS_WITH_A_BODY = frozenset({"/v1/jobs:validate", "/preview"})
_HEALTH = frozenset({"/healthz", "/readyz"})
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]


class Gate:
    def __init__(self, app: ASGIApp, runtime: Runtime) -> None:
        self._app = app
        self._runtime = runtime
        self._trail = runtime.trail
        self._counts = runtime.request_counts
        self._turns = Turns(runtime.settings.capacity.requests)
        self._at_work = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = _with_encoded_key(scope)
        began = time.monotonic()
        status, took = 0, 0.0

        async def sending(message: Message) -> None:
            nonlocal status, took
            if message["type"] == "http.response.start":
                status, took = message["status"], time.monotonic() - began
                names = {name.lower() for name, _ in message["headers"]}
                further = [header for header in _HEADERS if header[0] not in names]
                message = {**message, "headers": [*message["headers"], *further]}
            await send(message)

        route: str | None = None
        self._at_work += 1
        try:
            _require_one_host(scope)
            if scope["path"] not in _HEALTH:
                # Followers are counted and bounded by themselves.
                at_work = self._at_work - 1 - self._runtime.following.total
                await self._turns.take(at_work, lambda: self._rank(scope))
            declared = _declared_length(scope)
            if declared > REQUEST_BYTES_MAX:
                raise _too_large()
            answer = looked_up(self._runtime, scope)
            if answer is not None:
                route = LOOKUP
                await answer(scope, receive, sending)
            else:
                await self._app(scope, _bounded(receive), sending)
        except Problem as problem:  # from the body's bound, or raised before any route
            if status:
                raise
            await problem.response()(scope, receive, sending)
        finally:
            self._at_work -= 1
            route = route or getattr(scope.get("route"), "path", None)
            seconds = took if status else time.monotonic() - began
            self._counts.note(route, scope["method"], status, seconds)
            if scope["method"] not in LOOKS and scope["path"] not in _LOOKS_WITH_A_BODY:
                state = scope.get("state", {})
                if "role" in state:  # strangers are counted by status; they fill no file
                    method, path = scope["method"][:20], _printable(scope["path"])
                    line = (state["who"], state["role"], method, path, status)
                    await run_in_threadpool(self._trail.note, *line, _address(scope))
            if log.isEnabledFor(logging.INFO):
                # Without the query: what is asked for may be somebody's data.
                log.info(
                    "%s %s %d %.1f ms", scope["method"], _printable(scope["path"]), status,
                    (time.monotonic() - began) * 1_000,
                )  # fmt: skip

    def _rank(self, scope: Scope) -> int:
        role = self._runtime.access.likely_role(Request(scope))
        return STRANGER if role is None else int(role)


def _with_encoded_key(scope: Scope) -> Scope:
    raw = scope.get("raw_path") or b""
    found = _KEYED.fullmatch(raw.split(b"?")[0])
    if found is None:
        return scope
    return {**scope, "path": b"".join(part or b"" for part in found.groups()).decode("latin-1")}


def _printable(path: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in path[:300])


def _require_one_host(scope: Scope) -> None:
    """Two of them would be read in two ways by what stands before the service."""
    hosts = sum(name == b"host" for name, _ in scope["headers"])
    if hosts > 1 or (hosts == 0 and scope["http_version"] != "1.0"):
        raise Problem("host-refused", 400, "send the header Host, once")


def _address(scope: Scope) -> str:
    """Where a request came from: the client's address, or that of the proxy before it."""
    return scope["client"][0] if scope.get("client") else ""


def _declared_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


def _too_large() -> Problem:
    detail = f"a request's body has at most {REQUEST_BYTES_MAX} bytes"
    return Problem("body-too-large", 413, detail, headers={"Connection": "close"})


def _bounded(receive: Receive) -> Receive:
    """The body, until it is longer than any may be."""
    taken = 0

    async def receiving() -> Message:
        nonlocal taken
        message = await receive()
        if message["type"] == "http.request":
            taken += len(message.get("body", b""))
            if taken > REQUEST_BYTES_MAX:
                raise _too_large()
        return message

    return receiving
