"""All pages of the console as one router, and the page for unknown addresses."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from service.console import asset_files
from service.console.page import render_problem
from service.console.pages import (
    activity,
    changes,
    health,
    help,
    jobs,
    login,
    quarantine,
    rest,
    results,
    specs,
    topics,
)
from service.problems import Problem

_PARTS = (
    asset_files,
    login,
    jobs,
    specs,
    topics,
    rest,
    results,
    changes,
    quarantine,
    activity,
    health,
    help,
)

router = APIRouter()
for _part in _PARTS:
    router.include_router(_part.router)


def install(app: FastAPI) -> None:
    """Answer unknown addresses with a page for browsers; leave programs' answers as they are."""
    fallback = app.exception_handlers[HTTPException]

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path
        browses = "text/html" in request.headers.get("accept", "") and request.method == "GET"
        response: Response = await fallback(request, error)  # type: ignore[misc]
        if response.status_code == 404 and browses and not path.startswith("/v1/"):
            return await render_problem(
                request, Problem("not-found", f"there is no page at {path[:200]}")
            )
        return response

    app.add_exception_handler(HTTPException, on_http)
