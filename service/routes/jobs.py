"""Routes of jobs: create, change, look, start, pause, stop, delete; their logs."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.limits import LOG_LINES_MAX, PAGE_ROWS_MAX
from service.access.requirements import needs
from service.access.tokens import Role
from service.problems import Problem
from service.routes.answering import answer
from service.routes.documents import Job, Jobs, Logs, Valid
from service.routes.evolution import told
from service.routes.examples import JOB, JOBS, LOGS, SPEC_DOCUMENT, VALID, answers
from service.runtime import Runtime, runtime_of
from service.supervision import job_log
from service.supervision.jobs import described, etag
from service.supervision.register import Desired, JobRecord

router = APIRouter(prefix="/v1", tags=["jobs"])

_viewer = Depends(needs(Role.VIEWER))
_operator = Depends(needs(Role.OPERATOR))
_admin = Depends(needs(Role.ADMIN))

_SPEC_SCHEMA = {
    "type": "object",
    "required": ["source", "columns", "query"],
    "description": "docs/job-spec.md has every key",
}
_SPEC_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/yaml": {"schema": _SPEC_SCHEMA, "example": SPEC_DOCUMENT},
            "application/json": {"schema": _SPEC_SCHEMA, "example": SPEC_DOCUMENT},
        },
    }
}


async def job_document(runtime: Runtime, record: JobRecord) -> dict[str, Any]:
    """What is said of a job; with a pending spec, what that would make of it."""
    document = described(record) | runtime.standing(record.name)
    if record.pending is not None:
        document["evolution"] = None
        with suppress(Problem):  # where the table cannot be read there is a job all the same
            spec = runtime.jobs.pending(record)
            document["evolution"] = await run_in_threadpool(told, runtime, record, spec)
    return document


@router.post(
    "/jobs:validate",
    dependencies=[_viewer],
    openapi_extra=_SPEC_BODY,
    responses=answers(Valid, VALID, 413, 422, 429),
)
async def validate(request: Request) -> Response:
    """Check a spec; every problem with its line and column."""
    runtime = runtime_of(request)
    body = await request.body()
    checked = await runtime.check(body)
    types = {named.name: str(named.type) for named in checked.plan.group}
    types |= {name: str(kind) for name, kind in checked.plan.results}
    columns = [{"name": name, "type": types[name]} for name in checked.plan.output]
    document = {"valid": True, "columns": columns, "spec": checked.spec.document()}
    return answer(document)


@router.get("/jobs", dependencies=[_viewer], responses=answers(Jobs, JOBS))
async def list_jobs(
    request: Request,
    state: Annotated[str | None, Query(description="only jobs in this actual state")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)] = 100,
    cursor: Annotated[str | None, Query(description="next_cursor of the page before")] = None,
) -> Response:
    """All jobs, in the order of their names."""
    runtime = runtime_of(request)
    found = [
        record
        for record in runtime.jobs.records()
        if (state is None or record.actual == state.upper())
        and (cursor is None or record.name > cursor)
    ]
    page = found[:limit]
    jobs = [described(record, full=False) | runtime.standing(record.name) for record in page]
    after = page[-1].name if len(found) > limit else None
    return answer({"jobs": jobs, "next_cursor": after})


@router.put(
    "/jobs/{name}",
    dependencies=[_admin],
    openapi_extra=_SPEC_BODY,
    responses={**answers(Job, JOB, 409, 412, 413, 422), **answers(Job, JOB, status=201)},
)
async def put_job(
    request: Request,
    name: str,
    replace: Annotated[
        bool, Query(description="keep a spec that does not fit the state, until it is approved")
    ] = False,
    if_match: Annotated[str | None, Header()] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Create a job, stopped, or change it. The same spec again changes nothing. A spec whose query,
    column types or buckets are not those of the job's state is refused; with `replace` it is
    pending until it is approved: a job that runs goes on with the old one, one that does not is
    AWAITING_APPROVAL. `evolution` says what would become of its state."""
    runtime = runtime_of(request)
    body = await request.body()
    record, created = await run_in_threadpool(
        runtime.put, name, body, if_match, if_none_match, replace=replace
    )
    headers = {"ETag": etag(record)}
    if created:
        headers["Location"] = f"/v1/jobs/{name}"
    return answer(await job_document(runtime, record), 201 if created else 200, headers)


@router.get("/jobs/{name}", dependencies=[_viewer], responses=answers(Job, JOB, 404))
async def get_job(request: Request, name: str) -> Response:
    """A job: what is desired, what is so since when and why, how far it is."""
    runtime = runtime_of(request)
    record = runtime.jobs.record(name)
    with suppress(Problem):  # without results there is a job all the same
        await runtime.ready(name)
    return answer(await job_document(runtime, record), headers={"ETag": etag(record)})


@router.delete(
    "/jobs/{name}",
    dependencies=[_admin],
    status_code=204,
    response_class=Response,
    responses=answers(None, None, 404, 409, 412, 422),
)
async def delete_job(
    request: Request,
    name: str,
    data: Annotated[
        Literal["keep", "drop"] | None,
        Query(description="whether its table stays; has to be said"),
    ] = None,
    if_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Delete a stopped job. `data=drop` removes its table too; a kept one is taken up again by
    the next job of that name with the same query."""
    runtime = runtime_of(request)
    runtime.jobs.record(name)
    if data is None:
        detail = "say what becomes of the job's table: ?data=keep or ?data=drop"
        errors = [{"path": "query.data", "message": "is required: keep or drop"}]
        raise Problem("parameter-invalid", 422, detail, errors=errors)
    await run_in_threadpool(runtime.delete, name, drop_data=data == "drop", if_match=if_match)
    return Response(status_code=204)


def _add_action(action: str, desired: Desired, summary: str) -> None:
    async def act(request: Request, name: str) -> Response:
        runtime = runtime_of(request)
        runtime.jobs.record(name)
        again = action == "restart"
        await run_in_threadpool(runtime.supervisor.ask, name, desired, again=again)
        return answer(await job_document(runtime, runtime.jobs.record(name)), 202)

    router.add_api_route(
        f"/jobs/{{name}}/{action}",
        act,
        methods=["POST"],
        name=f"{action} a job",
        description=f"{summary} It is remembered, and done soon; asking twice is no error.",
        dependencies=[_operator],
        status_code=202,
        responses=answers(Job, JOB, 404, 409, 429, status=202),
    )


_add_action("start", Desired.RUNNING, "The job is to run.")
_add_action("resume", Desired.RUNNING, "The job is to run again, from where it stands.")
_add_action("restart", Desired.RUNNING, "A running job ends its epoch and starts again.")
_add_action("pause", Desired.PAUSED, "The job ends its epoch, and is to come back later.")
_add_action("stop", Desired.STOPPED, "The job ends its epoch, and is not to run.")


@router.get("/jobs/{name}/logs", dependencies=[_operator], responses=answers(Logs, LOGS, 404))
async def logs(
    request: Request,
    name: str,
    limit: Annotated[int, Query(ge=1, le=LOG_LINES_MAX)] = 100,
    level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], Query()] = "DEBUG",
) -> Response:
    """The newest lines of a job's log, oldest first."""
    runtime = runtime_of(request)
    runtime.jobs.record(name)
    lines = await run_in_threadpool(job_log.tail, runtime.jobs.places(name).log, limit, level)
    return answer({"lines": lines})
