"""Routes of a job's watermarks and savepoints."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from jobs.reading.savepoints import NAME, savepoints
from schemas.documents.answers import Savepoint, Savepoints, Watermarks
from schemas.documents.bodies import SavepointBody
from schemas.types.json_types import JsonObject
from schemas.types.moments import format_instant
from service.access.requirements import ADMIN, OPERATOR, VIEWER
from service.problems import Problem
from service.routes.answering import answer, make_body_problem, parse_body
from service.routes.examples import describe_body, describe_responses
from service.routes.views import require_whole_job
from service.runtime import Runtime, runtime_of
from service.supervision import operations

router = APIRouter(prefix="/v1")


# --- watermarks ---------------------------------------------------------------------------------


@router.get(
    "/jobs/{name}/watermarks",
    tags=["time"],
    dependencies=[VIEWER],
    responses=describe_responses(Watermarks, 404, 409),
)
async def get_watermarks(request: Request, name: str) -> Response:
    """Return the watermarks of the job and its partitions, as of the newest epoch."""
    newest = (await runtime_of(request).wait_until_ready(name)).require_newest()
    time: JsonObject = {"combined": None, "status": None, "held_by": [], "topics": {}}
    document = {"epoch": newest.epoch, "committed_at": format_instant(newest.committed_at // 1_000)}
    return answer(document | time | newest.watermarks)


# --- savepoints ---------------------------------------------------------------------------------


@router.get(
    "/jobs/{name}/savepoints",
    tags=["savepoints"],
    dependencies=[VIEWER],
    responses=describe_responses(Savepoints, 404),
)
async def list_savepoints(request: Request, name: str) -> Response:
    """Return the savepoints of a job, oldest first."""
    require_whole_job(name, "savepoints")
    runtime = runtime_of(request)
    runtime.jobs.find_record(name)
    return answer(Savepoints(await run_in_threadpool(list_job_savepoints, runtime, name)))


def list_job_savepoints(runtime: Runtime, name: str) -> list[Savepoint]:
    """Return the savepoints of a job, oldest first."""
    return [each.describe() for each in savepoints(runtime.jobs.find_paths(name).home)]


@router.post(
    "/jobs/{name}/savepoints",
    tags=["savepoints"],
    dependencies=[OPERATOR],
    status_code=201,
    openapi_extra=describe_body(SavepointBody),
    responses=describe_responses(Savepoint, 404, 409, 422, status=201),
)
async def make_savepoint(request: Request, name: str) -> Response:
    """Create a savepoint of the newest epoch; its default name is `epoch-N`."""
    require_whole_job(name, "savepoints")
    runtime = runtime_of(request)
    live_table = await runtime.wait_until_ready(name)
    asked = (await parse_body(request, SavepointBody)).name
    if asked is not None:
        _check_savepoint_name(asked)
        if any(each.name == asked for each in list_job_savepoints(runtime, name)):
            detail = f"job {name!r} already has a savepoint {asked!r}; choose another name"
            raise Problem("savepoint-exists", detail)
    live_table.require_newest()
    arguments = ["savepoint", name, "--json", *(["--name", asked] if asked else [])]
    output = await run_in_threadpool(operations.run_command, runtime.settings, arguments)
    document = msgspec.json.decode(output, type=Savepoint)
    address = f"/v1/jobs/{name}/savepoints/{document.name}"
    return answer(document, 201, {"Location": address})


@router.delete(
    "/jobs/{name}/savepoints/{savepoint}",
    tags=["savepoints"],
    dependencies=[ADMIN],
    status_code=204,
    response_class=Response,
    responses=describe_responses(None, 404, 409),
)
async def delete_savepoint(request: Request, name: str, savepoint: str) -> Response:
    """Delete a savepoint; files that only it uses are removed later."""
    require_whole_job(name, "savepoints")
    runtime = runtime_of(request)
    runtime.jobs.find_record(name)
    known = await run_in_threadpool(list_job_savepoints, runtime, name)
    if not any(each.name == savepoint for each in known):
        raise Problem("savepoint-unknown", f"job {name!r} has no savepoint {savepoint[:80]!r}")
    arguments = ["savepoint", name, "--delete", savepoint]
    await run_in_threadpool(operations.run_command, runtime.settings, arguments)
    return Response(status_code=204)


def _check_savepoint_name(name: str) -> None:
    if NAME.fullmatch(name) is None or name.isdigit():
        reason = "a savepoint name has up to 63 letters, digits, . _ -, and not only digits"
        raise make_body_problem("body.name", reason)
