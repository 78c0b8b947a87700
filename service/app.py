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

from service import problems
from service.access.requirements import SCHEME, needs
from service.access.tokens import Role
from service.console import routes as console
from service.live.reader_process import Nursery
from service.routes import (
    approvals,
    changes,
    groups,
    health,
    jobs,
    offsets,
    operations,
    progress,
    results,
    sessions,
)
from service.routes.documents import schemas
from service.routes.gate import Gate
from service.routes.parameters import require_known
from service.runtime import Runtime
from service.settings import Settings

_ROUTERS = (
    results.router,
    changes.router,
    groups.router,
    progress.router,
    offsets.router,
    operations.router,
    sessions.router,
    jobs.router,
    approvals.router,
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
    app.include_router(health.router)
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
