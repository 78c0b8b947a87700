"""Routes of who is there: login and logout of a browser, tickets for EventSource, the trail."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.limits import SESSION_SECONDS_MAX, TICKET_SECONDS_MAX, TRAIL_LINES_MAX
from service.access.requirements import needs, same_origin
from service.access.sessions import change_word
from service.access.tokens import Role
from service.problems import Problem
from service.routes.answering import answer
from service.routes.bodies import body_of
from service.routes.documents import Session, Ticket, TrailLines
from service.routes.examples import answers, body_schema
from service.runtime import runtime_of

router = APIRouter(prefix="/v1", tags=["service"])

_viewer = Depends(needs(Role.VIEWER))
_admin = Depends(needs(Role.ADMIN))
_SESSION = {"who": "ci", "role": "operator", "csrf": "5f0c...", "login": True}
_LINE = {
    "at": "2026-01-31T12:00:00.000Z",
    "who": "ci",
    "from": "10.1.2.3",
    "method": "POST",
    "path": "/v1/jobs/items/start",
    "status": 202,
}


class LoginBody(msgspec.Struct, forbid_unknown_fields=True):
    token: str


class TicketBody(msgspec.Struct, forbid_unknown_fields=True):
    job: str


@router.post(
    "/session",
    status_code=201,
    openapi_extra=body_schema({"token": {"type": "string"}}, {"token": "rt_..."}, ["token"]),
    responses=answers(Session, _SESSION, status=201),
)
async def login(request: Request) -> Response:
    """Log a browser in with a token: a cookie that scripts cannot read, and the word `csrf` that
    has to be in X-CSRF-Token with every change."""
    access = runtime_of(request).access
    same_origin(request)
    token = (await body_of(request, LoginBody)).token
    session = await run_in_threadpool(access.sessions.begin, token.strip())
    known = None if session is None else access.sessions.role_of(session)
    if session is None or known is None:
        raise Problem("unauthorized", 401, "the token is not valid")
    request.state.who, request.state.role = known
    document = {"who": known[0], "role": known[1].name.lower(), "csrf": change_word(session)}
    headers = {"Set-Cookie": access.cookie(request, session, int(SESSION_SECONDS_MAX))}
    return answer(document | {"login": True}, 201, headers)


@router.get("/session", dependencies=[_viewer], responses=answers(Session, _SESSION))
async def session(request: Request) -> Response:
    """Who asks; `csrf` where that is a browser's session, `login` where one is needed at all."""
    access = runtime_of(request).access
    cookie = access.session_of(request)
    csrf = None if cookie is None or request.state.by != "session" else change_word(cookie)
    document = {"who": request.state.who, "role": request.state.role.name.lower(), "csrf": csrf}
    return answer(document | {"login": not access.admits_everybody()})


@router.delete(
    "/session",
    dependencies=[_viewer],
    status_code=204,
    response_class=Response,
    responses=answers(None, None),
)
async def logout(request: Request) -> Response:
    """End the browser's session."""
    access = runtime_of(request).access
    cookie = access.session_of(request)
    if cookie is not None:
        await run_in_threadpool(access.sessions.end, cookie)
    return Response(status_code=204, headers={"Set-Cookie": access.cookie(request, "", 0)})


@router.post(
    "/tickets",
    dependencies=[_viewer],
    status_code=201,
    openapi_extra=body_schema({"job": {"type": "string"}}, {"job": "items"}, ["job"]),
    responses=answers(Ticket, {"ticket": "Yx3...", "seconds": 30}, 404, 429, status=201),
)
async def ticket(request: Request) -> Response:
    """A ticket for EventSource, which cannot send a token: `?ticket=` opens one stream of this
    job's changes, once, within some seconds."""
    runtime = runtime_of(request)
    job = (await body_of(request, TicketBody)).job
    runtime.jobs.record(job)
    given = runtime.access.tickets.give(runtime.access.token_hash(request), job)
    if given is None:
        detail = "too many tickets are out; try again in half a minute"
        raise Problem("too-many-requests", 429, detail, headers={"Retry-After": "30"})
    return answer({"ticket": given, "seconds": int(TICKET_SECONDS_MAX)}, 201)


_LINES = answers(TrailLines, {"lines": [_LINE]})


@router.get("/audit-log", dependencies=[_admin], responses=_LINES)
@router.get("/trail", dependencies=[_admin], responses=_LINES, deprecated=True)
async def audit_log(
    request: Request, limit: Annotated[int, Query(ge=1, le=TRAIL_LINES_MAX)] = 100
) -> Response:
    """Who has asked for changes, and what the answers were; the newest first."""
    runtime = runtime_of(request)
    return answer({"lines": await run_in_threadpool(runtime.trail.newest, limit)})
