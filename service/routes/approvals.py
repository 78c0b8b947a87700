"""The route that approves a pending spec and decides about the job's state.

keep    the state continues under the new query, in one epoch     ─┐ operations; a running job
replay  the job reads the topic again, beside its running process ─┘ pauses for the last step
drop    the service drops the table, and the job starts over
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.documents.answers import Job, Operation
from schemas.spec.file import spec_text
from schemas.spec.job import JobSpec
from schemas.types.json_types import JsonObject
from service.access.requirements import ADMIN
from service.problems import Problem
from service.routes.examples import describe_responses
from service.routes.jobs import answer_job
from service.routes.operations import RequestKey, answer_accepted, find_repeated, submit_operation
from service.runtime import Runtime, runtime_of
from service.supervision.conditions import make_etag
from service.supervision.evolving import describe_evolution
from service.supervision.register import Actual, Desired, JobRecord

router = APIRouter(prefix="/v1", tags=["jobs"])

State = Literal["keep", "replay", "drop"]
_EVOLVE: JsonObject = {
    "kind": "evolve",
    "arguments": {"state": "keep"},
    "result": {"job": "items", "epoch": 42, "changelog_rows": 26},
}


@router.post(
    "/jobs/{name}/approve",
    dependencies=[ADMIN],
    responses={
        **describe_responses(Job, 404, 409, 412, 429),
        **describe_responses(Operation, 404, 409, 412, 429, status=202, **_EVOLVE),
    },
)
async def approve_spec(
    request: Request,
    name: str,
    state: Annotated[
        State | None, Query(description="what to do with the state; keep by default, if possible")
    ] = None,
    if_match: Annotated[str | None, Header()] = None,
    idempotency_key: RequestKey = None,
) -> Response:
    """Approve the pending spec.

    `keep` and `replay` are operations: the job continues under the new query, or under the old one
    if the operation fails. A running job pauses only for the last step. `drop` drops the table of a
    stopped job, which then starts over from `source.start`. With the ETag of GET in `If-Match`, a
    spec that became pending after that GET is not approved.
    """
    runtime = runtime_of(request)
    record = runtime.jobs.find_record(name)
    if (known := find_repeated(runtime, name, "evolve", idempotency_key)) is not None:
        return answer_accepted(known)
    spec = runtime.jobs.require_pending(record, if_match)
    chosen = await run_in_threadpool(_choose, runtime, record, spec, state)
    if chosen == "drop":
        record = await run_in_threadpool(runtime.approve, name, if_match)
        return await answer_job(runtime, record, headers={"ETag": make_etag(record)})
    input = spec_text(spec).encode()
    arguments = {"state": chosen, "revision": record.revision}
    return await submit_operation(
        request, name, "evolve", arguments, idempotency_key, input, alone=True
    )


def _choose(runtime: Runtime, record: JobRecord, spec: JobSpec, state: State | None) -> State:
    """Return what to do with the state; raise a Problem that names the alternatives."""
    if state == "drop":
        return state
    found = describe_evolution(runtime.jobs, record, spec)
    if found is None:  # there is no state yet
        return "drop"
    wanted = state or "keep"
    possible = {"keep": found.continues, "replay": found.replays}
    if not possible[wanted]:
        others = [each for each in ("replay", "drop") if possible.get(each, True)]
        raise Problem(
            "state-insufficient",
            f"{'; '.join(found.reasons)}. Choose what to do with the state: "
            + " or ".join(f"state={each}" for each in others),
            errors=[{"path": "query.state", "message": reason} for reason in found.reasons],
            evolution=found,
            choices=others,
        )
    if record.desired != Desired.RUNNING and record.actual == Actual.RUNNING:
        detail = f"job {record.name!r} runs outside the service; stop it there first"
        raise Problem("job-not-stopped", detail)
    return wanted
