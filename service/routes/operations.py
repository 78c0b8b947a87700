"""Routes of long-running operations: audit, rewind, clone, resend a message.

POST ──► check what can be checked immediately ──► 202, Location of the operation
"""

from __future__ import annotations

import base64
import binascii
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from jobs.core.job.cloning import clone_problems, clone_spec
from jobs.core.job.refused_message import job_decoders
from jobs.reading import savepoints
from jobs.reading.quarantine import read_message
from jobs.topics.schema_registry import find_by, find_refusal
from schemas.directory.quarantine import read_replay
from schemas.documents.answers import Operation, OperationKind, Operations, OperationState
from schemas.documents.bodies import CloneBody, ReplayAllBody, ReplayBody, RewindBody
from schemas.limits import JOB_NAME_CHARACTERS_MAX, REQUEST_KEY_CHARACTERS_MAX, RESENT_AT_ONCE_MAX
from schemas.spec.connections import Connections
from schemas.spec.file import load_spec, spec_text
from schemas.spec.job import JobSpec
from schemas.types.json_types import JsonObject
from service.access.requirements import ADMIN, OPERATOR, VIEWER
from service.problems import Problem, make_parameter_problem
from service.routes.answering import answer, make_body_problem, parse_body, parse_message
from service.routes.examples import describe_body, describe_responses
from service.routes.views import open_view, require_whole_job
from service.runtime import Runtime, runtime_of
from service.supervision import operations
from service.supervision.jobs import JOB_NAME
from service.supervision.register import OperationRecord

router = APIRouter(prefix="/v1", tags=["operations"])

RequestKey = Annotated[
    str | None, Header(alias="Idempotency-Key", max_length=REQUEST_KEY_CHARACTERS_MAX, min_length=1)
]


def describe_submission(
    body: type[msgspec.Struct] | None = None, *problems: int, **shown: Any
) -> dict[str, Any]:
    """Return the description of a route that submits an operation; `shown` as in its example."""
    responses = describe_responses(Operation, 404, 409, 429, *problems, status=202, **shown)
    form = {} if body is None else {"openapi_extra": describe_body(body)}
    return {"status_code": 202, "responses": responses, **form}


async def submit_operation(
    request: Request,
    job: str,
    kind: OperationKind,
    arguments: JsonObject,
    request_key: str | None,
    input: bytes | None = None,
    *,
    alone: bool = False,
) -> Response:
    """Submit an operation; return 202 with its address in Location."""
    runtime = runtime_of(request)
    record = await run_in_threadpool(
        runtime.operations.submit,
        job,
        kind,
        arguments,
        request_key,
        input,
        asked_by=request.state.who,
        alone=alone,
    )
    return answer_accepted(record)


def answer_accepted(record: OperationRecord) -> Response:
    """Return 202 for an operation, with its address in Location."""
    address = f"/v1/operations/{record.id}"
    return answer(operations.describe_operation(record), 202, {"Location": address})


def find_repeated(
    runtime: Runtime, job: str, kind: OperationKind, key: str | None
) -> OperationRecord | None:
    """Return the operation that a repeated request has submitted, whatever changed since."""
    known = None if key is None else runtime.register.find_operation_by_key(job, key)
    if known is not None and known.kind != kind:
        reason = f"the key was used for another operation, {known.kind}; use a new key"
        raise make_parameter_problem("header.idempotency-key", reason)
    return known


def _split_view(name: str) -> tuple[str, JsonObject]:
    """Return the job that an operation belongs to, and the argument that names its view."""
    job, _, view = name.partition(".")
    return job, {"view": view} if view else {}


def _parse_goal(to: str | int) -> str:
    goal = str(to)
    if savepoints.NAME.fullmatch(goal) is None:
        raise make_body_problem("body.to", "must be the name of a savepoint, or an epoch")
    return goal


@router.post("/jobs/{name}/audit", dependencies=[OPERATOR], **describe_submission())
async def audit_job(request: Request, name: str, idempotency_key: RequestKey = None) -> Response:
    """Recompute the results of a job or a view from the topic, and compare them with the table.

    The report is the result of the operation, which belongs to the job. The job may run meanwhile.
    """
    runtime = runtime_of(request)
    (await runtime.wait_until_ready(name)).require_newest()
    job, arguments = _split_view(name)
    if (known := find_repeated(runtime, job, "audit", idempotency_key)) is not None:
        return answer_accepted(known)
    return await submit_operation(request, job, "audit", arguments, idempotency_key)


@router.post("/jobs/{name}/rewind", dependencies=[ADMIN], **describe_submission(RewindBody))
async def rewind_job(request: Request, name: str, idempotency_key: RequestKey = None) -> Response:
    """Restore a stopped job to a savepoint or an epoch, in a new epoch.

    The changes of that epoch bring consumers to the same results.
    """
    require_whole_job(name, "rewind")
    runtime = runtime_of(request)
    (await runtime.wait_until_ready(name)).require_newest()
    if (known := find_repeated(runtime, name, "rewind", idempotency_key)) is not None:
        return answer_accepted(known)
    to = _parse_goal((await parse_body(request, RewindBody)).to)
    runtime.jobs.require_stopped(name)
    return await submit_operation(request, name, "rewind", {"to": to}, idempotency_key)


@router.post("/jobs/{name}/clone", dependencies=[ADMIN], **describe_submission(CloneBody))
async def clone_job(request: Request, name: str, idempotency_key: RequestKey = None) -> Response:
    """Create a stopped job with the state of this job, now or at the savepoint or epoch `to`.

    The clone has its own table and continues from the same offsets. Without `spec`, it has the spec
    of this job without its sink.
    """
    require_whole_job(name, "clone")
    runtime = runtime_of(request)
    (await runtime.wait_until_ready(name)).require_newest()
    if (known := find_repeated(runtime, name, "clone", idempotency_key)) is not None:
        return answer_accepted(known)
    body = await parse_body(request, CloneBody)
    if JOB_NAME.fullmatch(body.name) is None:
        reason = f"a job name has a-z, 0-9, _ and -, at most {JOB_NAME_CHARACTERS_MAX} characters"
        raise make_body_problem("body.name", reason)
    to = None if body.to is None else _parse_goal(body.to)
    input = await run_in_threadpool(_make_clone_spec, runtime, name, body)
    arguments = {"name": body.name, "to": to}
    return await submit_operation(request, name, "clone", arguments, idempotency_key, input)


def _make_clone_spec(runtime: Runtime, name: str, body: CloneBody) -> bytes:
    """Return the spec of the new job, checked against the state of the old one."""
    # The state fits the spec of the last run, which may be older than the job's spec.
    old = load_spec(runtime.jobs.find_paths(name).spec)
    spec = clone_spec(old, body.name)
    if body.spec is not None:
        spec = runtime.jobs.check_spec(msgspec.json.encode(body.spec), body.name).spec
    wrong = clone_problems(spec, old)
    if wrong:
        errors = {f"spec.{key}": reason for key, reason in wrong.items()}
        detail = f"the clone cannot continue from the state of {name!r}"
        raise Problem("query-fixed", detail, errors=errors)
    runtime.jobs.require_free(body.name)
    return spec_text(spec).encode()


@router.post(
    "/jobs/{name}/quarantine/{id}/replay",
    dependencies=[ADMIN],
    **describe_submission(ReplayBody),
)
async def replay_message(
    request: Request, name: str, id: str, idempotency_key: RequestKey = None
) -> Response:
    """Resend a quarantined message to its topic, unchanged or corrected by the body.

    The job reads it in order, like every message. A message is resent only once, unless `again`.
    """
    runtime = runtime_of(request)
    live_table = await open_view(request, name)
    position = parse_message(id)
    job, of_view = _split_view(name)
    if (known := find_repeated(runtime, job, "quarantine", idempotency_key)) is not None:
        return answer_accepted(known)
    body = await parse_body(request, ReplayBody)
    fixed = _read_fixed(body)
    await runtime.read_table(live_table, lambda table: read_message(table, position))  # or 404
    if fixed is not None:
        spec = runtime.jobs.parse_spec(runtime.jobs.find_record(job))
        refused = await runtime.attempts.run(
            partial(_why_refused, spec, position[1], fixed, runtime.settings.connections)
        )
        if refused is not None:
            detail = "the job cannot process this message"
            raise Problem("message-refused", detail, errors={refused[1]: refused[0]})
    sent = read_replay(live_table.paths.replayed, id)
    if sent is not None and sent.offset is not None and not body.again:
        detail = f"it was resent as offset {sent.offset} of {sent.topic}/{sent.partition}"
        raise Problem("message-replayed", detail)
    arguments = {"id": id, "fixed": fixed is not None, "again": body.again} | of_view
    return await submit_operation(request, job, "quarantine", arguments, idempotency_key, fixed)


@router.post(
    "/jobs/{name}/quarantine/replay", dependencies=[ADMIN], **describe_submission(ReplayAllBody)
)
async def replay_messages(
    request: Request, name: str, idempotency_key: RequestKey = None
) -> Response:
    """Resend quarantined messages to their topics, unchanged, in one operation.

    They are sent in the order of the ids.

    Its result has the messages that were sent, and the reasons of those that were refused. For a
    single id it is that of the route for one message.
    """
    runtime = runtime_of(request)
    await open_view(request, name)
    job, of_view = _split_view(name)
    if (known := find_repeated(runtime, job, "quarantine", idempotency_key)) is not None:
        return answer_accepted(known)
    body = await parse_body(request, ReplayAllBody)
    if not 0 < len(body.ids) <= RESENT_AT_ONCE_MAX:
        raise make_body_problem("body.ids", f"must have 1 to {RESENT_AT_ONCE_MAX:,} ids")
    for each in body.ids:
        parse_message(each)  # or 404
    ids = list(dict.fromkeys(body.ids))
    one: JsonObject = {"id": ids[0], "fixed": False}
    arguments = (one if len(ids) == 1 else {"ids": ids}) | {"again": body.again} | of_view
    return await submit_operation(request, job, "quarantine", arguments, idempotency_key)


def _why_refused(
    spec: JobSpec, topic: str, message: bytes, connections: Connections
) -> tuple[str, str] | None:
    """Return why the job cannot process a message, if so; it runs in a child process."""
    return find_refusal(job_decoders(spec, topic, partial(find_by, connections)), message)


def _read_fixed(body: ReplayBody) -> bytes | None:
    if body.message is not None and body.message_base64 is not None:
        raise make_body_problem("body.message_base64", "excludes message; send one of them")
    if body.message_base64 is None:
        return None if body.message is None else body.message.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(body.message_base64, validate=True)
    except (binascii.Error, ValueError):
        raise make_body_problem("body.message_base64", "is not base64") from None


@router.get("/operations/{id}", dependencies=[VIEWER], responses=describe_responses(Operation, 404))
async def get_operation(request: Request, id: str) -> Response:
    """Return an operation with its state and result; operations are kept forever."""
    record = runtime_of(request).register.find_operation(id)
    if record is None:
        raise Problem("operation-unknown", "no operation has this id")
    return answer(operations.describe_operation(record))


@router.get(
    "/jobs/{name}/operations", dependencies=[VIEWER], responses=describe_responses(Operations, 404)
)
async def list_operations(
    request: Request,
    name: str,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    state: Annotated[OperationState | None, Query()] = None,
) -> Response:
    """Return the operations of a job, newest first."""
    runtime = runtime_of(request)
    runtime.jobs.find_record(name)
    found = runtime.register.list_operations(name, limit, state)
    return answer(Operations([operations.describe_operation(each) for each in found]))
