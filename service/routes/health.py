"""Routes for those who look after the service. Alive and ready tell nothing else, to anyone."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse, Response

from service.access.requirements import needs
from service.access.tokens import Role
from service.routes import metrics
from service.routes.answering import answer
from service.routes.documents import Health, reference
from service.runtime import runtime_of

router = APIRouter(tags=["service"])

_HEALTH: dict[int | str, Any] = {
    200: {
        "description": "Success",
        "content": {"application/json": {"schema": reference(Health)}},
    }
}


@router.get("/healthz", responses=_HEALTH)
async def alive() -> Response:
    """Whether the process answers."""
    return answer({"status": "alive"})


@router.get("/readyz", responses={**_HEALTH, 503: {**_HEALTH[200], "description": "Not now"}})
async def ready(request: Request) -> Response:
    """Whether the service can do its work: its register is read, its supervisor looks."""
    runtime = runtime_of(request)
    if not runtime.supervisor.healthy:
        return answer({"status": "not ready", "reason": "the supervisor does not look"}, 503)
    return answer({"status": "ready"})


@router.get(
    "/metrics",
    dependencies=[Depends(needs(Role.VIEWER))],
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {"example": "retally_followers 3\n"}}}},
)
async def show_metrics(request: Request) -> Response:
    """Metrics in Prometheus' text format."""
    text = await run_in_threadpool(metrics.text, runtime_of(request))
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
