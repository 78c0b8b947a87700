"""Login: exchange a token for a session of service.routes.sessions."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.limits import SESSION_SECONDS_MAX, TOKEN_CHARACTERS_MAX
from service.access.requirements import require_same_origin
from service.console.page import PageRoute, redirect_to, render_page
from service.console.visitor import require_visitor, safe_path
from service.problems import Problem
from service.runtime import runtime_of

_FIELDS_MAX = 10

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/login")
async def login_page(request: Request, next: str = "/") -> Response:
    """Show the login form; redirect users who are logged in."""
    path = safe_path(next)
    try:
        require_visitor(request)
    except Problem as problem:
        if problem.code != "unauthorized":
            raise
        return await render_page(request, None, "login.html", next=path, refused=None)
    return redirect_to(path)


@router.post("/login")
async def login(request: Request) -> Response:
    """Start a session for a valid token; show the form again for an invalid one."""
    access = runtime_of(request).access
    require_same_origin(request)
    fields = _parse_fields(await request.body())
    path = safe_path(fields.get("next", "/"))
    token = fields.get("token", "").strip()[:TOKEN_CHARACTERS_MAX]
    session = await run_in_threadpool(access.sessions.start, token)
    known = None if session is None else access.sessions.find_role(session)
    if session is None or known is None:
        refused = "This token is not valid. It may be revoked or incomplete."
        return await render_page(
            request, None, "login.html", status=401, next=path, refused=refused
        )
    request.state.who, request.state.role = known
    cookie = access.make_cookie(request, session, int(SESSION_SECONDS_MAX))
    return redirect_to(path, {"Set-Cookie": cookie})


def _parse_fields(body: bytes) -> dict[str, str]:
    """Return the fields of a form, the first of each name; empty if it cannot be parsed."""
    try:
        found = parse_qs(body.decode("utf-8", "replace"), max_num_fields=_FIELDS_MAX)
    except ValueError:
        return {}
    return {name: values[0] for name, values in found.items()}
