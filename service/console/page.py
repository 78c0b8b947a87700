"""Pages: rendered templates with the headers that every page has.

    handler ──► render_page(request, visitor, TEMPLATE, values...) ──► HTML, a strict CSP
       └ Problem, or anything else that is raised ──► PageRoute ──► the login page, or an error page

A page is complete without scripts. Its live parts are elements with `data-live` and an id, which
assets/live.js reloads from the same address. So each part is rendered in one place only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from importlib import metadata
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from service.console.asset_files import DIGEST, asset_address
from service.console.formatting import FILTERS, ZONE, base_of, name_zone
from service.console.visitor import Visitor, login_address, read_preferences, require_visitor
from service.problems import Problem
from service.request_ids import current_id

log = logging.getLogger(__name__)

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cache-Control": "no-store",
    # Not no-referrer: browsers then send `Origin: null` with a form, which is refused.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_SEE_OTHER = 303


def _make_environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,  # a misspelt name fails in the first test
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals.update(
        asset=asset_address,
        digest=DIGEST,
        version=metadata.version("retally"),
        zone=name_zone,
    )
    environment.filters.update(FILTERS)
    return environment


_ENVIRONMENT = _make_environment()


def _render(template: str, **values: Any) -> str:
    return _ENVIRONMENT.get_template(template).render(**values)


Context = dict[str, Any]  # the variables of a template


async def render_page(
    request: Request,
    visitor: Visitor | None,
    template: str,
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
    **values: Any,
) -> Response:
    """Render a template in a thread: a page with many charts would delay other requests."""
    find_leader = request.app.state.runtime.find_leader
    text = await run_in_threadpool(
        _render,
        template,
        visitor=visitor,
        path=request.url.path,
        preferences=read_preferences(request),
        find_leader=find_leader,
        **values,
    )
    return Response(text, status, HEADERS | (headers or {}), "text/html; charset=utf-8")


class PageRoute(APIRoute):
    """A route whose errors are answered as pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            ZONE.set(read_preferences(request).tzinfo)
            try:
                return await handler(request)
            except Problem as problem:
                return await render_problem(request, problem)
            except RequestValidationError as error:
                named = ", ".join(".".join(map(str, each["loc"][1:])) for each in error.errors())
                detail = f"the address has invalid parameters: {named}"
                return await render_problem(request, Problem("parameter-invalid", detail))
            except Exception as error:
                incident = current_id()
                log.error("incident %s", incident, exc_info=error)
                detail = f"The service's log has the details: search for incident {incident}."
                return await render_problem(request, Problem("internal", detail))

        return handle


async def render_problem(request: Request, problem: Problem) -> Response:
    """Return a problem as a page; redirect an unknown user to the login page."""
    if problem.code == "unauthorized":
        headers = {"Location": login_address(request), **HEADERS}
        return Response(status_code=_SEE_OTHER, headers=headers)
    try:
        visitor = require_visitor(request)
    except Problem:  # an unknown Host header, or a token without a role
        visitor = None
    return await render_page(
        request,
        visitor,
        "problem.html",
        status=problem.status,
        headers=problem.headers,
        title=problem.kind.title,
        problem=problem,
        back=_find_page_above(request.url.path, problem),
    )


def _find_page_above(path: str, problem: Problem) -> tuple[str, str] | None:
    """Return the name and the address of the nearest page above one that cannot be shown."""
    _, area, name, *below = *path.split("/"), "", ""
    job, _, view = name.partition(".")
    if area != "jobs" or not job:
        return None
    if problem.code == "job-unknown":  # of a view that was dropped, its job is still there
        return (job, base_of(job, "")) if view else None
    if len([each for each in below if each]) < 2:
        return None
    whose = f"{view} of {job}" if view else job
    return f"{below[0]} of {whose}", f"{base_of(job, view)}/{below[0]}"


def redirect_to(path: str, headers: dict[str, str] | None = None) -> Response:
    """Redirect to another page by GET."""
    return RedirectResponse(path, _SEE_OTHER, HEADERS | (headers or {}))
