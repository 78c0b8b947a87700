"""Routes of operations, which take a while: audit, rewind, clone, a message sent again.

POST ──► what can be checked at once is checked ──► 202, Location of the operation
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from jobs.core.job.cloning import cloned_spec, misfits
from jobs.core.job.job_plan import plan_of
from jobs.core.job.refused_message import why_refused
from schemas.limits import JOB_NAME_CHARACTERS_MAX
from schemas.spec.file import load_spec, spec_text
from schemas.table.replayed import read_replay
from service.access.requirements import needs
from service.access.tokens import Role
from service.problems import Problem
from service.routes.answering import answer, newest_of, read_table
from service.routes.bodies import body_invalid, body_of
from service.routes.documents import Operation, Operations
from service.routes.examples import answers, body_schema
from service.routes.progress import SAVEPOINT_NAME
from service.runtime import Runtime, runtime_of
from service.supervision import operations
from service.supervision.jobs import JOB_NAME
from service.supervision.register import OperationRecord
from service.table.quarantine import message, place_of

router = APIRouter(prefix="/v1", tags=["operations"])

_viewer = Depends(needs(Role.VIEWER))
_operator = Depends(needs(Role.OPERATOR))
_admin = Depends(needs(Role.ADMIN))

OPERATION = {
    "id": "0f3a",
    "job": "items",
    "kind": "audit",
    "state": "DONE",
    "arguments": {},
    "asked_by": "ci",
    "created_at": "2026-01-31T12:00:00.000Z",
    "began_at": "2026-01-31T12:00:00.000Z",
    "ended_at": "2026-01-31T12:00:20.000Z",
    "result": {"verdict": "equal", "epoch": 41, "groups": 13, "differing": 0},
    "reason": None,
}
_TO = {"type": ["string", "integer", "null"]}
_REQUEST_KEY_MAX = 200

RequestKey = Annotated[
    str | None, Header(alias="Idempotency-Key", max_length=_REQUEST_KEY_MAX, min_length=1)
]


class RewindBody(msgspec.Struct, forbid_unknown_fields=True):
    to: str | int


class CloneBody(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    to: str | int | None = None
    spec: dict[str, Any] | None = None


class ReplayBody(msgspec.Struct, forbid_unknown_fields=True):
    message: str | None = None
    message_base64: str | None = None
    again: bool = False


async def operation_asked(
    request: Request,
    job: str,
    kind: str,
    arguments: dict[str, Any],
    request_key: str | None,
    given: bytes | None = None,
    *,
    alone: bool = False,
) -> Response:
    """The operation, accepted; where it can be looked at is in Location."""
    runtime = runtime_of(request)
    record = await run_in_threadpool(
        runtime.operations.ask, job, kind, arguments, request_key, given,
        asked_by=request.state.who, alone=alone,
    )  # fmt: skip
    return accepted(record)


def accepted(record: OperationRecord) -> Response:
    place = f"/v1/operations/{record.id}"
    return answer(operations.described(record), 202, {"Location": place})


def asked_before(runtime: Runtime, job: str, kind: str, key: str | None) -> OperationRecord | None:
    """What the same key has asked for: what it has done since must not refuse its repetition."""
    known = None if key is None else runtime.register.operation_of_request(job, key)
    if known is not None and known.kind != kind:
        reason = f"the key has asked for another operation, {known.kind}; use a new one"
        errors = [{"path": "header.idempotency-key", "message": reason}]
        raise Problem("parameter-invalid", 422, reason, errors=errors)
    return known


def _goal(to: str | int) -> str:
    goal = str(to)
    if SAVEPOINT_NAME.fullmatch(goal) is None:
        raise body_invalid("body.to", "to is a savepoint's name, or an epoch")
    return goal


@router.post(
    "/jobs/{name}/audit",
    dependencies=[_operator],
    status_code=202,
    responses=answers(Operation, OPERATION, 404, 409, 429, status=202),
)
async def audit(request: Request, name: str, idempotency_key: RequestKey = None) -> Response:
    """Recompute the job's results from its topic and compare; the report is the result of the
    operation. The job may run meanwhile."""
    runtime = runtime_of(request)
    newest_of(await runtime.ready(name))
    if (known := asked_before(runtime, name, "audit", idempotency_key)) is not None:
        return accepted(known)
    return await operation_asked(request, name, "audit", {}, idempotency_key)


@router.post(
    "/jobs/{name}/rewind",
    dependencies=[_admin],
    status_code=202,
    openapi_extra=body_schema(
        {"to": {"type": ["string", "integer"]}}, {"to": "before-import"}, ["to"]
    ),
    responses=answers(Operation, OPERATION, 404, 409, 422, 429, status=202),
)
async def rewind(request: Request, name: str, idempotency_key: RequestKey = None) -> Response:
    """Set a stopped job back to a savepoint or an epoch, as a new epoch: consumers of its
    changes follow."""
    runtime = runtime_of(request)
    newest_of(await runtime.ready(name))
    if (known := asked_before(runtime, name, "rewind", idempotency_key)) is not None:
        return accepted(known)
    to = _goal((await body_of(request, RewindBody)).to)
    runtime.jobs.require_stopped(name)
    return await operation_asked(request, name, "rewind", {"to": to}, idempotency_key)


@router.post(
    "/jobs/{name}/clone",
    dependencies=[_admin],
    status_code=202,
    openapi_extra=body_schema(
        {"name": {"type": "string"}, "to": _TO, "spec": {"type": ["object", "null"]}},
        {"name": "items-trial", "to": "before-import"},
        ["name"],
    ),
    responses=answers(Operation, OPERATION, 404, 409, 422, 429, status=202),
)
async def clone(request: Request, name: str, idempotency_key: RequestKey = None) -> Response:
    """Make a new job, stopped, with the state of this one: as it is, or as it was at the savepoint
    or epoch `to`. It has a table of its own and goes on from the same offsets. Without `spec` it
    has this job's, but no sink."""
    runtime = runtime_of(request)
    newest_of(await runtime.ready(name))
    if (known := asked_before(runtime, name, "clone", idempotency_key)) is not None:
        return accepted(known)
    asked = await body_of(request, CloneBody)
    if JOB_NAME.fullmatch(asked.name) is None:
        reason = f"a job's name is a-z, 0-9 and -, at most {JOB_NAME_CHARACTERS_MAX} characters"
        raise body_invalid("body.name", reason)
    to = None if asked.to is None else _goal(asked.to)
    given = await run_in_threadpool(_spec_of_clone, runtime, name, asked)
    arguments = {"name": asked.name, "to": to}
    return await operation_asked(request, name, "clone", arguments, idempotency_key, given)


def _spec_of_clone(runtime: Runtime, name: str, asked: CloneBody) -> bytes:
    """The spec of the new job, checked as far as one can before its state is there."""
    # What the state is of is the spec of the last run, whatever was put since.
    of = load_spec(runtime.jobs.places(name).spec)
    spec = cloned_spec(of, asked.name)
    if asked.spec is not None:
        spec = runtime.jobs.check(msgspec.json.encode(asked.spec), asked.name).spec
    plan, other = plan_of(spec), plan_of(of)
    wrong = misfits(spec, plan, of, other)
    if wrong:
        errors = [{"path": f"spec.{key}", "message": reason} for key, reason in wrong.items()]
        detail = f"the clone cannot go on with the state of {name!r}"
        raise Problem("query-fixed", 409, detail, errors=errors)
    runtime.jobs.require_free(asked.name)
    return spec_text(spec).encode()


@router.post(
    "/jobs/{name}/quarantine/{id}/replay",
    dependencies=[_admin],
    status_code=202,
    openapi_extra=body_schema(
        {
            "message": {"type": ["string", "null"]},
            "message_base64": {"type": ["string", "null"]},
            "again": {"type": "boolean"},
        },
        {"message": '{"type": "INSERT", "data": [{"id": "1", "name": "bolt", "cnt": "3"}]}'},
    ),
    responses=answers(Operation, OPERATION, 404, 409, 422, 429, status=202),
)
async def replay(
    request: Request, name: str, id: str, idempotency_key: RequestKey = None
) -> Response:
    """Send a message of the quarantine to its topic again: fixed, as the body has it, or as it
    was. It is read in its turn, like every message. A message is sent once, unless `again`."""
    runtime = runtime_of(request)
    follower = await runtime.ready(name)
    place = place_of(id)
    if (known := asked_before(runtime, name, "quarantine", idempotency_key)) is not None:
        return accepted(known)
    asked = await body_of(request, ReplayBody)
    fixed = _fixed(asked)
    await run_in_threadpool(
        read_table, runtime, follower, lambda table: message(table, place)
    )  # else 404
    if fixed is not None:
        refused = await run_in_threadpool(why_refused, follower.spec, follower.shape.plan, fixed)
        if refused is not None:
            reason, path = refused
            errors = [{"path": path, "message": reason}]
            raise Problem("message-refused", 422, "the job would refuse it", errors=errors)
    sent = read_replay(runtime.jobs.places(name).replayed, id)
    if sent is not None and sent.offset is not None and not asked.again:
        detail = f"it was sent again as offset {sent.offset} of {sent.topic}/{sent.partition}"
        raise Problem("message-replayed", 409, detail)
    arguments = {"id": id, "fixed": fixed is not None, "again": asked.again}
    return await operation_asked(request, name, "quarantine", arguments, idempotency_key, fixed)


def _fixed(asked: ReplayBody) -> bytes | None:
    if asked.message is not None and asked.message_base64 is not None:
        raise body_invalid("body.message_base64", "is given beside message; keep one of them")
    if asked.message_base64 is None:
        return None if asked.message is None else asked.message.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(asked.message_base64, validate=True)
    except (binascii.Error, ValueError):
        raise body_invalid("body.message_base64", "is not base64") from None


@router.get(
    "/operations/{id}", dependencies=[_viewer], responses=answers(Operation, OPERATION, 404)
)
async def get_operation(request: Request, id: str) -> Response:
    """An operation: waiting, running, or done with its result; kept for good."""
    record = runtime_of(request).register.operation(id)
    if record is None:
        raise Problem("operation-unknown", 404, "there is no such operation")
    return answer(operations.described(record))


@router.get(
    "/jobs/{name}/operations",
    dependencies=[_viewer],
    responses=answers(Operations, {"operations": [OPERATION]}, 404),
)
async def list_operations(
    request: Request,
    name: str,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    state: Annotated[Literal["WAITING", "RUNNING", "DONE", "FAILED"] | None, Query()] = None,
) -> Response:
    """The operations of a job, the newest first."""
    runtime = runtime_of(request)
    runtime.jobs.record(name)
    found = runtime.register.operations(name, limit)
    shown = [operations.described(each) for each in found if state in (None, each.state)]
    return answer({"operations": shown})
