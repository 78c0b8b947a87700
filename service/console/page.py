"""Pages: a template and what it shows, answered with the headers that every page has.

    handler ──► page(request, visitor, "job.html", job=...) ──► HTML, no-store, a strict CSP
       └ Problem, or anything else that is raised ──► PageRoute ──► the login page, or an error page

A page is whole: its live parts are elements with `data-live` and an id, which assets/live.js takes
anew from the same address. So there is one place that renders a thing, and it needs no script.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import uuid4

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from service.console import words
from service.console.asset_files import DIGEST, asset
from service.console.visitor import Visitor, login_address, visitor_of
from service.problems import TITLES, Problem

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
    # Not no-referrer, with which a form says that it comes from nowhere, and is refused.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_SEE_OTHER = 303


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,  # a name that is misspelt fails in the first test
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals.update(asset=asset, digest=DIGEST, version=metadata.version("retally"))
    environment.filters.update(words.FILTERS)
    return environment


_ENVIRONMENT = _environment()


def rendered(template: str, **shown: Any) -> str:
    return _ENVIRONMENT.get_template(template).render(**shown)


async def page(
    request: Request,
    visitor: Visitor | None,
    template: str,
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
    **shown: Any,
) -> Response:
    """A page. It is rendered in a thread: one with many charts would hold up other requests."""
    text = await run_in_threadpool(
        rendered, template, visitor=visitor, path=request.url.path, **shown
    )
    return Response(text, status, HEADERS | (headers or {}), "text/html; charset=utf-8")


class PageRoute(APIRoute):
    """Whatever a page's handler raises is told as a page."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handler(request)
            except Problem as problem:
                return await told(request, problem)
            except RequestValidationError as error:
                named = ", ".join(".".join(map(str, each["loc"][1:])) for each in error.errors())
                detail = f"the address cannot be read: see {named}"
                return await told(request, Problem("parameter-invalid", 422, detail))
            except Exception as error:
                incident = uuid4().hex[:12]
                log.error("incident %s", incident, exc_info=error)
                detail = f"The service's log says more: look for incident {incident}."
                return await told(request, Problem("internal", 500, detail))

        return handled


async def told(request: Request, problem: Problem) -> Response:
    """A problem as a page; whoever is not known is led to the login."""
    if problem.code == "unauthorized":
        headers = {"Location": login_address(request), **HEADERS}
        return Response(status_code=_SEE_OTHER, headers=headers)
    try:
        visitor = visitor_of(request)
    except Problem:  # by a name that is not served, or with a role that may see nothing
        visitor = None
    return await page(
        request,
        visitor,
        "problem.html",
        status=problem.status,
        headers=problem.headers,
        title=TITLES[problem.code],
        problem=problem,
    )


def elsewhere(place: str, headers: dict[str, str] | None = None) -> Response:
    """To another page, by GET."""
    return RedirectResponse(place, _SEE_OTHER, HEADERS | (headers or {}))
