"""The console's pages as one router, each part in a file of its own; and what is no page."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from service.console import asset_files
from service.console.page import told
from service.console.pages import (
    audit_log as trail_page,
)
from service.console.pages import (
    audits as audit_pages,
)
from service.console.pages import (
    changes as change_pages,
)
from service.console.pages import (
    groups as key_pages,
)
from service.console.pages import (
    jobs as job_pages,
)
from service.console.pages import (
    login as login_pages,
)
from service.console.pages import (
    quarantine as quarantine_pages,
)
from service.console.pages import (
    results as result_pages,
)
from service.console.pages import (
    specs as spec_pages,
)
from service.problems import Problem

_PARTS = (
    asset_files,
    login_pages,
    job_pages,
    spec_pages,
    trail_page,
    result_pages,
    key_pages,
    change_pages,
    quarantine_pages,
    audit_pages,
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
