"""The application: its routes, the checks before them, and its error handlers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import metadata

from fastapi import Depends, FastAPI
from fastapi.concurrency import run_in_threadpool
from fastapi.middleware.gzip import GZipMiddleware
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES
from starlette.types import ASGIApp

from schemas.limits import GZIP_BYTES_MIN, GZIP_LEVEL
from schemas.types.json_types import JsonObject
from service import problems
from service.access.requirements import VIEWER
from service.answers.media import Media
from service.console import routes as console
from service.live.reader_process import ReaderSpawner
from service.middleware.gate import Gate
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
    sql,
    topics,
    views,
)
from service.routes.answering import require_known
from service.routes.examples import make_schemas
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
    sql.router,
    topics.router,
    views.router,
)
_ABOUT = (
    "Run jobs that maintain GROUP BY aggregates over a change stream, read their results, and "
    "follow their changes. Errors are problem+json with a stable `code`."
)


def create(
    settings: Settings,
    spawner: ReaderSpawner,
    find_leader: Callable[[], str | None] | None = None,
) -> tuple[FastAPI, ASGIApp]:
    """Return the application, and the gate in front of it, which a server runs."""
    runtime = Runtime(settings, spawner, find_leader)

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
        redirect_slashes=False,  # with 307; service.problems answers with 308
        generate_unique_id_function=lambda route: route.name,  # the functions of generated clients
        dependencies=[Depends(require_known)],
    )
    # Streams of changes are sent as they are; Arrow has its own compression.
    app.add_middleware(
        GZipMiddleware,
        minimum_size=GZIP_BYTES_MIN,
        compresslevel=GZIP_LEVEL,
        exclude_content_types=(*DEFAULT_EXCLUDED_CONTENT_TYPES, Media.NDJSON, Media.ARROW),
    )
    app.state.runtime = runtime
    app.state.access = runtime.access
    problems.install_handlers(app)
    console.install(app)
    app.include_router(health.router)
    app.include_router(console.router)
    for router in _ROUTERS:
        app.include_router(router)

    generate = app.openapi

    def generate_with_documents() -> JsonObject:
        document = generate()
        document.setdefault("components", {}).setdefault("schemas", {}).update(make_schemas())
        return document

    app.openapi = generate_with_documents  # type: ignore[method-assign]

    @app.get("/openapi.json", dependencies=[VIEWER], tags=["service"])
    async def get_openapi() -> JsonObject:
        """Return this OpenAPI document."""
        return app.openapi()

    return app, Gate(app, runtime)
