"""Login: a token once, and then the session of service.routes.sessions."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.limits import SESSION_SECONDS_MAX
from service.access.requirements import same_origin
from service.access.tokens import TOKEN_CHARACTERS_MAX
from service.console.page import PageRoute, elsewhere, page
from service.console.visitor import own_place, visitor_of
from service.problems import Problem
from service.runtime import runtime_of

_FIELDS_MAX = 10

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/login")
async def login_page(request: Request, next: str = "/") -> Response:
    """The form; whoever is known already is led on."""
    place = own_place(next)
    try:
        visitor_of(request)
    except Problem as problem:
        if problem.code != "unauthorized":
            raise
        return await page(request, None, "login.html", next=place, refused=None)
    return elsewhere(place)


@router.post("/login")
async def login(request: Request) -> Response:
    """A token becomes a session; one that is not known is asked for again."""
    access = runtime_of(request).access
    same_origin(request)
    fields = _fields(await request.body())
    place = own_place(fields.get("next", "/"))
    token = fields.get("token", "").strip()[:TOKEN_CHARACTERS_MAX]
    session = await run_in_threadpool(access.sessions.begin, token)
    known = None if session is None else access.sessions.role_of(session)
    if session is None or known is None:
        refused = "This token is not valid. Perhaps it was revoked, or a part of it is missing."
        return await page(request, None, "login.html", status=401, next=place, refused=refused)
    request.state.who, request.state.role = known
    cookie = access.cookie(request, session, int(SESSION_SECONDS_MAX))
    return elsewhere(place, {"Set-Cookie": cookie})


def _fields(body: bytes) -> dict[str, str]:
    """A form's fields, the first of each name; nothing where it is no form of ours."""
    try:
        found = parse_qs(body.decode("utf-8", "replace"), max_num_fields=_FIELDS_MAX)
    except ValueError:
        return {}
    return {name: values[0] for name, values in found.items()}
