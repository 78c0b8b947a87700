"""Routes of where a job stands in time, and of its savepoints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.table.epoch import EpochRow
from service.access.requirements import needs
from service.access.tokens import Role
from service.moments import instant
from service.problems import Problem
from service.routes.answering import answer, newest_of
from service.routes.bodies import body_of
from service.routes.documents import Savepoint, Savepoints, Watermarks
from service.routes.examples import answers, body_schema
from service.runtime import Runtime, runtime_of
from service.supervision import operations

router = APIRouter(prefix="/v1")

_viewer = Depends(needs(Role.VIEWER))
_operator = Depends(needs(Role.OPERATOR))
_admin = Depends(needs(Role.ADMIN))

_SAVEPOINT = {
    "name": "before-import",
    "epoch": 41,
    "committed_at": "2026-01-31T12:00:00.000Z",
    "groups": 13,
    "offsets": {"shop.product": {"0": 131}},
}
_WATERMARKS = {
    "epoch": 41,
    "combined": 1769860799999,
    "status": "active",
    "held_by": [],
    "topics": {"shop.product": {"partitions": {"0": {"watermark": 1769860799999}}}},
}
SAVEPOINT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
NAME_PATTERN = "^[A-Za-z0-9]*[A-Za-z][A-Za-z0-9._-]{0,30}$"


class SavepointBody(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None


class _Savepoint(msgspec.Struct):
    """The file of a savepoint; its list of files is not of interest here."""

    name: str
    row: EpochRow


# --- where it is --------------------------------------------------------------------------------


@router.get(
    "/jobs/{name}/watermarks",
    tags=["time"],
    dependencies=[_viewer],
    responses=answers(Watermarks, _WATERMARKS, 404, 409),
)
async def watermarks(request: Request, name: str) -> Response:
    """The job's watermark as of its newest epoch, each partition's, and whom it waits for."""
    newest = newest_of(await runtime_of(request).ready(name))
    told = {"combined": None, "status": None, "held_by": [], "topics": {}} | newest.watermarks
    document = {"epoch": newest.epoch, "committed_at": instant(newest.committed_at // 1_000)}
    return answer(document | told)


# --- savepoints ---------------------------------------------------------------------------------


@router.get(
    "/jobs/{name}/savepoints",
    tags=["savepoints"],
    dependencies=[_viewer],
    responses=answers(Savepoints, {"savepoints": [_SAVEPOINT]}, 404),
)
async def list_savepoints(request: Request, name: str) -> Response:
    """Named epochs, which can be gone back to; the oldest first."""
    runtime = runtime_of(request)
    runtime.jobs.record(name)
    return answer({"savepoints": await run_in_threadpool(savepoints_of, runtime, name)})


def savepoints_of(runtime: Runtime, name: str) -> list[dict[str, Any]]:
    home: Path = runtime.jobs.places(name).savepoints
    found = []
    for path in home.glob("*.json") if home.is_dir() else ():
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=_Savepoint))
        except FileNotFoundError:  # deleted since
            continue
    found.sort(key=lambda each: (each.row.epoch, each.name))
    return [
        {
            "name": each.name,
            "epoch": each.row.epoch,
            "committed_at": instant(each.row.committed_at // 1_000),
            "groups": each.row.counters.get("groups", 0),
            "offsets": each.row.offsets,
        }
        for each in found
    ]


@router.post(
    "/jobs/{name}/savepoints",
    tags=["savepoints"],
    dependencies=[_operator],
    status_code=201,
    openapi_extra=body_schema(
        {"name": {"type": ["string", "null"], "pattern": NAME_PATTERN}}, {"name": "before-import"}
    ),
    responses=answers(Savepoint, _SAVEPOINT, 404, 409, 422, status=201),
)
async def make_savepoint(request: Request, name: str) -> Response:
    """Name the newest epoch, while the job runs or not; `epoch-N` without a name."""
    runtime = runtime_of(request)
    follower = await runtime.ready(name)
    asked = (await body_of(request, SavepointBody)).name
    if asked is not None:
        _check_savepoint_name(asked)
        if any(each["name"] == asked for each in savepoints_of(runtime, name)):
            detail = f"job {name!r} has a savepoint {asked!r}; choose another name"
            raise Problem("savepoint-exists", 409, detail)
    newest_of(follower)
    arguments = ["savepoint", name, "--json", *(["--name", asked] if asked else [])]
    code, out, said = await run_in_threadpool(operations.command, runtime.settings, arguments)
    if code != 0:
        raise Problem("operation-failed", 409, said[:500])
    document = msgspec.json.decode(out)
    place = f"/v1/jobs/{name}/savepoints/{document['name']}"
    return answer(document, 201, {"Location": place})


@router.delete(
    "/jobs/{name}/savepoints/{savepoint}",
    tags=["savepoints"],
    dependencies=[_admin],
    status_code=204,
    response_class=Response,
    responses=answers(None, None, 404, 409),
)
async def delete_savepoint(request: Request, name: str, savepoint: str) -> Response:
    """Let go of a savepoint; the files that only it has kept are swept later."""
    runtime = runtime_of(request)
    runtime.jobs.record(name)
    known = await run_in_threadpool(savepoints_of, runtime, name)
    if not any(each["name"] == savepoint for each in known):
        raise Problem("savepoint-unknown", 404, f"job {name!r} has no savepoint {savepoint[:80]!r}")
    arguments = ["savepoint", name, "--delete", savepoint]
    code, _, said = await run_in_threadpool(operations.command, runtime.settings, arguments)
    if code != 0:
        raise Problem("operation-failed", 409, said[:500])
    return Response(status_code=204)


def _check_savepoint_name(name: str) -> None:
    if SAVEPOINT_NAME.fullmatch(name) is None or name.isdigit():
        detail = "a savepoint's name is up to 63 letters, digits, . _ -, and not only digits"
        errors = [{"path": "body.name", "message": detail}]
        raise Problem("body-invalid", 422, detail, errors=errors)
