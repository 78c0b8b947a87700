"""The route that says what becomes of a job's state under its pending spec.

keep    the state goes on under the new query, as one epoch     ─┐ operations; a job that runs
replay  the topic is read again, beside the job that may run    ─┘ stands still for the last step
drop    the table is dropped, and the job begins anew
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.spec.file import spec_text
from schemas.spec.job import JobSpec
from service.access.requirements import needs
from service.access.tokens import Role
from service.problems import Problem
from service.routes.answering import answer
from service.routes.documents import Job, Operation
from service.routes.evolution import told
from service.routes.examples import JOB, answers
from service.routes.jobs import job_document
from service.routes.operations import OPERATION, RequestKey, accepted, asked_before, operation_asked
from service.runtime import Runtime, runtime_of
from service.supervision.jobs import etag
from service.supervision.register import Actual, Desired, JobRecord

router = APIRouter(prefix="/v1", tags=["jobs"])

State = Literal["keep", "replay", "drop"]
_EVOLVE = {**OPERATION, "kind": "evolve", "arguments": {"state": "keep"}}
_EVOLVE["result"] = {"job": "items", "epoch": 42, "changelog_rows": 26}


@router.post(
    "/jobs/{name}/approve",
    dependencies=[Depends(needs(Role.ADMIN))],
    responses={
        **answers(Job, JOB, 404, 409, 412, 429),
        **answers(Operation, _EVOLVE, 404, 409, 412, 429, status=202),
    },
)
async def approve(
    request: Request,
    name: str,
    state: Annotated[
        State | None, Query(description="what becomes of the state; keep, where it answers")
    ] = None,
    if_match: Annotated[str | None, Header()] = None,
    idempotency_key: RequestKey = None,
) -> Response:
    """Take the pending spec. `keep` and `replay` are operations: the job goes on under the new
    query, and its old one where that fails; a job that runs is stopped for the last step only.
    `drop` lets go of a stopped job's table, and the job begins anew from `source.start`."""
    runtime = runtime_of(request)
    record = runtime.jobs.record(name)
    if (known := asked_before(runtime, name, "evolve", idempotency_key)) is not None:
        return accepted(known)
    spec = runtime.jobs.pending(record, if_match)
    chosen = await run_in_threadpool(_chosen, runtime, record, spec, state)
    if chosen == "drop":
        record = await run_in_threadpool(runtime.approve, name, if_match)
        return answer(await job_document(runtime, record), headers={"ETag": etag(record)})
    given = spec_text(spec).encode()
    arguments = {"state": chosen, "revision": record.revision}
    return await operation_asked(
        request, name, "evolve", arguments, idempotency_key, given, alone=True
    )


def _chosen(runtime: Runtime, record: JobRecord, spec: JobSpec, state: State | None) -> State:
    """What is to become of the state; a Problem names what else there is."""
    found = told(runtime, record, spec)
    if found is None:  # there is no state yet
        return "drop"
    if state == "drop":
        return state
    wanted = state or "keep"
    possible = {"keep": found["continues"], "replay": found["replays"]}
    if not possible[wanted]:
        others = [each for each in ("replay", "drop") if possible.get(each, True)]
        raise Problem(
            "state-insufficient",
            409,
            f"{'; '.join(found['reasons'])}. Say what becomes of the state: "
            + " or ".join(f"state={each}" for each in others),
            errors=[{"path": "query.state", "message": reason} for reason in found["reasons"]],
            evolution=found,
            choices=others,
        )
    if record.desired != Desired.RUNNING and record.actual == Actual.RUNNING:
        detail = f"job {record.name!r} runs outside the service; stop it there first"
        raise Problem("job-not-stopped", 409, detail)
    return wanted
