"""The application: routes, what is checked before them, and what becomes of errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import metadata
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.concurrency import run_in_threadpool
from starlette.types import ASGIApp

from service import (
    approval_routes,
    change_routes,
    group_routes,
    health_routes,
    job_routes,
    offset_routes,
    operation_routes,
    problems,
    result_routes,
    session_routes,
    standing_routes,
)
from service.access import SCHEME, needs
from service.console import routes as console
from service.documents import schemas
from service.gate import Gate
from service.parameters import require_known
from service.reader_process import Nursery
from service.runtime import Runtime
from service.settings import Settings
from service.tokens import Role

_ROUTERS = (
    result_routes.router,
    change_routes.router,
    group_routes.router,
    standing_routes.router,
    offset_routes.router,
    operation_routes.router,
    session_routes.router,
    job_routes.router,
    approval_routes.router,
)
_ABOUT = (
    "Jobs that keep GROUP BY aggregates over a change stream: run them, read their results, follow "
    "their changes. Errors are problem+json with a stable `code`."
)


def create(settings: Settings, nursery: Nursery | None = None) -> tuple[FastAPI, ASGIApp]:
    """The application, and the same behind its gate, which is what a server serves."""
    runtime = Runtime(settings, nursery)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await run_in_threadpool(runtime.start, asyncio.get_running_loop())
        yield
        await run_in_threadpool(runtime.close)

    app = FastAPI(
        title="retally",
        version=metadata.version("retally"),
        description=_ABOUT,
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        dependencies=[Depends(require_known)],
    )
    app.state.runtime = runtime
    app.state.access = runtime.access
    problems.install(app)
    console.install(app)
    app.include_router(health_routes.router)
    app.include_router(console.router)
    for router in _ROUTERS:
        app.include_router(router, dependencies=[Depends(SCHEME)])

    described = app.openapi

    def openapi_with_documents() -> dict[str, Any]:
        document = described()
        document.setdefault("components", {}).setdefault("schemas", {}).update(schemas())
        return document

    app.openapi = openapi_with_documents  # type: ignore[method-assign]

    @app.get("/openapi.json", dependencies=[Depends(needs(Role.VIEWER))], tags=["service"])
    async def openapi() -> dict[str, Any]:
        """This description."""
        return app.openapi()

    return app, Gate(app, runtime)
