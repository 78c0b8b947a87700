"""Routes for those who look after the service: alive, ready. Both tell nothing else, to anyone."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.job_routes import answer
from service.runtime import runtime_of

router = APIRouter(tags=["service"])


@router.get("/healthz")
async def alive() -> Response:
    """Whether the process answers."""
    return answer({"status": "alive"})


@router.get("/readyz")
async def ready(request: Request) -> Response:
    """Whether the service can do its work: its register is read, its supervisor looks."""
    runtime = runtime_of(request)
    if not runtime.supervisor.healthy:
        return answer({"status": "not ready", "reason": "the supervisor does not look"}, 503)
    return answer({"status": "ready"})
