"""The console's pages as one router, each part in a file of its own; and what is no page."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from service.console import asset_files
from service.console.page import told
from service.console.pages import (
    audit_log,
    audits,
    changes,
    groups,
    jobs,
    login,
    quarantine,
    results,
    specs,
)
from service.problems import Problem

_PARTS = (
    asset_files,
    login,
    jobs,
    specs,
    audit_log,
    results,
    groups,
    changes,
    quarantine,
    audits,
)

router = APIRouter()
for _part in _PARTS:
    router.include_router(_part.router)


def install(app: FastAPI) -> None:
    """Who looks for a page that is none is told so by a page; programs are told as before."""
    otherwise = app.exception_handlers[HTTPException]

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path
        looks = "text/html" in request.headers.get("accept", "") and request.method == "GET"
        if error.status_code == 404 and looks and not path.startswith("/v1/"):
            return await told(
                request, Problem("not-found", 404, f"there is nothing at {path[:200]}")
            )
        response: Response = await otherwise(request, error)  # type: ignore[misc]
        return response

    app.add_exception_handler(HTTPException, on_http)
