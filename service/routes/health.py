"""Routes for operators: liveness and readiness, without a token, and metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse, Response

from schemas.documents.answers import Health
from service.access.requirements import VIEWER
from service.routes import metrics
from service.routes.answering import answer
from service.routes.examples import describe_responses, make_reference
from service.runtime import runtime_of

router = APIRouter(tags=["service"])

_HEALTH: dict[int | str, Any] = {
    200: {
        "description": "Success",
        "content": {"application/json": {"schema": make_reference(Health)}},
    }
}


@router.get("/healthz", responses=_HEALTH)
async def check_alive() -> Response:
    """Return 200 while the process is alive."""
    return answer(Health("alive"))


@router.get("/readyz", responses={**_HEALTH, 503: {**_HEALTH[200], "description": "Not ready"}})
async def check_ready(request: Request) -> Response:
    """Return 200 if the register is readable and the supervisor is running.

    `leads` tells the service that takes changes from those that only read.
    """
    leads = (runtime := runtime_of(request)).leads
    if not leads:
        return answer(Health("ready", leads, "it only reads; another service leads"))
    if not runtime.supervisor.healthy:
        return answer(Health("not ready", leads, "the supervisor is not running"), 503)
    return answer(Health("ready", leads))


@router.get(
    "/metrics",
    dependencies=[VIEWER],
    response_class=PlainTextResponse,
    responses=describe_responses(None, media={"text/plain": "retally_followers 3\n"}),
)
async def get_metrics(request: Request) -> Response:
    """Return the metrics in the Prometheus text format."""
    text = await run_in_threadpool(metrics.format_metrics, runtime_of(request))
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
