"""Routes of users: login and logout of a browser, tickets for EventSource, the audit log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.documents.answers import AuditLogLines, Session, Ticket
from schemas.documents.bodies import LoginBody, TicketBody
from schemas.limits import AUDIT_LOG_LINES_MAX, SESSION_SECONDS_MAX, TICKET_SECONDS_MAX
from service.access.requirements import ADMIN, VIEWER, require_same_origin
from service.access.sessions import derive_csrf_token
from service.problems import Problem
from service.routes.answering import answer, parse_body
from service.routes.examples import describe_body, describe_responses
from service.routes.views import find_view_record
from service.runtime import runtime_of

router = APIRouter(prefix="/v1", tags=["service"])


@router.post(
    "/session",
    status_code=201,
    openapi_extra=describe_body(LoginBody),
    responses=describe_responses(Session, status=201),
)
async def login(request: Request) -> Response:
    """Start a browser session with a token.

    The response sets a cookie that scripts cannot read. Its `csrf` token is required in the header
    X-CSRF-Token of every change.
    """
    access = runtime_of(request).access
    require_same_origin(request)
    token = (await parse_body(request, LoginBody)).token
    session = await run_in_threadpool(access.sessions.start, token.strip())
    known = None if session is None else access.sessions.find_role(session)
    if session is None or known is None:
        raise Problem("unauthorized", "the token is not valid")
    request.state.who, request.state.role = known
    document = {"who": known[0], "role": known[1].name.lower(), "csrf": derive_csrf_token(session)}
    headers = {"Set-Cookie": access.make_cookie(request, session, int(SESSION_SECONDS_MAX))}
    return answer(document | {"login": True}, 201, headers)


@router.get("/session", dependencies=[VIEWER], responses=describe_responses(Session))
async def get_session(request: Request) -> Response:
    """Return the user and role; `csrf` in a browser session, `login` if tokens exist."""
    access = runtime_of(request).access
    cookie = access.find_session(request)
    csrf = None if cookie is None or request.state.by != "session" else derive_csrf_token(cookie)
    document = {"who": request.state.who, "role": request.state.role.name.lower(), "csrf": csrf}
    return answer(document | {"login": not access.admits_everybody()})


@router.delete(
    "/session",
    dependencies=[VIEWER],
    status_code=204,
    response_class=Response,
    responses=describe_responses(None),
)
async def logout(request: Request) -> Response:
    """End the browser's session."""
    access = runtime_of(request).access
    cookie = access.find_session(request)
    if cookie is not None:
        await run_in_threadpool(access.sessions.end, cookie)
    return Response(status_code=204, headers={"Set-Cookie": access.make_cookie(request, "", 0)})


@router.post(
    "/tickets",
    dependencies=[VIEWER],
    status_code=201,
    openapi_extra=describe_body(TicketBody),
    responses=describe_responses(Ticket, 404, 429, status=201),
)
async def create_ticket(request: Request) -> Response:
    """Issue a ticket for EventSource, which cannot send a token.

    `?ticket=` opens one stream of changes, once, within some seconds: that of the job, or of any of
    its views. A ticket for the job `items.top` opens only the stream of this view.
    """
    runtime = runtime_of(request)
    named = (await parse_body(request, TicketBody)).job
    job = find_view_record(runtime, named).name
    issued = runtime.access.tickets.issue(request.state.token, job)
    if issued is None:
        detail = "too many tickets are unused; try again in 30 seconds"
        raise Problem("too-many-requests", detail, headers={"Retry-After": "30"})
    return answer(Ticket(issued, int(TICKET_SECONDS_MAX)), 201)


_LINES = describe_responses(AuditLogLines)


@router.get("/audit-log", dependencies=[ADMIN], responses=_LINES)
@router.get("/trail", dependencies=[ADMIN], responses=_LINES, deprecated=True, name="get_trail")
async def get_audit_log(
    request: Request, limit: Annotated[int, Query(ge=1, le=AUDIT_LOG_LINES_MAX)] = 100
) -> Response:
    """Who requested which change, and the status of the response; newest first."""
    runtime = runtime_of(request)
    return answer(AuditLogLines(await run_in_threadpool(runtime.audit_log.newest, limit)))
