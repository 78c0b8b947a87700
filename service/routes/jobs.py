"""Routes of jobs: create, change, read, start, pause, stop, delete; their logs."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from msgspec.structs import replace

from jobs.core.job.job_plan import plan_of
from jobs.core.job.plan_nodes import list_nodes
from schemas.documents.answers import Job, JobPlan, Jobs, Level, Logs, ResultColumn, Valid
from schemas.limits import LOG_LINES_MAX, PAGE_ROWS_MAX
from schemas.spec.file import spec_schema
from schemas.types.json_types import JsonObject
from service.access.requirements import ADMIN, OPERATOR, VIEWER
from service.problems import Problem, describe_spec_problem
from service.routes.answering import answer
from service.routes.examples import SPEC_DOCUMENT, describe_responses
from service.routes.views import find_view_record, require_whole_job
from service.runtime import Runtime, runtime_of
from service.supervision import job_log
from service.supervision.conditions import make_etag
from service.supervision.evolving import describe_evolution
from service.supervision.register import Desired, JobRecord

router = APIRouter(prefix="/v1", tags=["jobs"])


_SPEC_SCHEMA = {
    "type": "object",
    "anyOf": [{"required": ["source", "columns"]}, {"required": ["sources"]}],
    "description": "docs/job-spec.md has every key, GET /v1/schema the JSON Schema",
}
_SCHEMA_EXAMPLE = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"}
_SPEC_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/yaml": {"schema": _SPEC_SCHEMA, "example": SPEC_DOCUMENT},
            "application/json": {"schema": _SPEC_SCHEMA, "example": SPEC_DOCUMENT},
        },
    }
}


async def answer_job(
    runtime: Runtime, record: JobRecord, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Answer with a job's document; with a pending spec, also its effect on the state."""
    document = runtime.describe_job(record, full=True)
    if record.pending is not None:
        evolution = None
        with suppress(Problem):  # the table may be unreadable
            spec = runtime.jobs.require_pending(record)
            evolution = await run_in_threadpool(describe_evolution, runtime.jobs, record, spec)
        document = replace(document, evolution=evolution)
    return answer(document, status, headers)


@router.post(
    "/jobs:validate",
    dependencies=[VIEWER],
    openapi_extra=_SPEC_BODY,
    responses=describe_responses(Valid, 409, 413, 422, 429),
)
async def validate_spec(request: Request) -> Response:
    """Check a spec; every error has its line and column.

    `columns` are those of the job's own query, `views` has those of each view. `evolution` is the
    effect on the state of the job of this name; nothing is changed.
    """
    runtime = runtime_of(request)
    body = await request.body()
    checked = await runtime.check_spec(body)
    record = evolution = None
    with suppress(Problem):  # there is no such job
        record = runtime.jobs.find_record(checked.spec.name)
    if record is not None:
        evolution = await run_in_threadpool(describe_evolution, runtime.jobs, record, checked.spec)
    columns = {
        view: [ResultColumn(name, str(plan.types[name])) for name in plan.output]
        for view, plan in checked.plans.items()
    }
    document = Valid(
        valid=True,
        columns=columns.pop("", []),
        views=columns,
        notes=[describe_spec_problem(note) for note in checked.notes],
        evolution=evolution,
        spec=checked.spec.document(),
    )
    return answer(document)


@router.get(
    "/schema",
    dependencies=[VIEWER],
    responses=describe_responses(None, media={"application/json": _SCHEMA_EXAMPLE}),
    tags=["service"],
)
async def get_schema() -> JsonObject:
    """Return the JSON Schema of a job spec, for editors."""
    return spec_schema()


@router.get("/jobs", dependencies=[VIEWER], responses=describe_responses(Jobs))
async def list_jobs(
    request: Request,
    state: Annotated[str | None, Query(description="only jobs in this actual state")] = None,
    label: Annotated[str | None, Query(description="only jobs whose spec has this label")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)] = 100,
    cursor: Annotated[str | None, Query(description="next_cursor of the previous page")] = None,
) -> Response:
    """Return all jobs, ordered by name."""
    runtime = runtime_of(request)
    found = [
        record
        for record in runtime.jobs.list_records()
        if (state is None or record.actual == state.upper())
        and (label is None or label in record.labels)
        and (cursor is None or record.name > cursor)
    ]
    page = found[:limit]
    after = page[-1].name if len(found) > limit else None
    return answer(Jobs([runtime.describe_job(record) for record in page], after))


@router.put(
    "/jobs/{name}",
    dependencies=[ADMIN],
    openapi_extra=_SPEC_BODY,
    responses={
        **describe_responses(Job, 409, 412, 413, 422),
        **describe_responses(Job, status=201),
    },
)
async def put_job(
    request: Request,
    name: str,
    replace: Annotated[
        bool, Query(description="save a spec that does not fit the state for approval")
    ] = False,
    if_match: Annotated[str | None, Header()] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Create a stopped job, or change its spec; an equal spec changes nothing.

    Once the job has started, a spec with another query, other column types or another bucket count
    is refused with 409. With `replace`, it is pending until it is approved: a running job continues
    with the old spec, a stopped one is AWAITING_APPROVAL. `evolution` is its effect on the state.
    """
    runtime = runtime_of(request)
    body = await request.body()
    record, created = await run_in_threadpool(
        runtime.put, name, body, if_match, if_none_match, replace=replace
    )
    with suppress(Problem):  # of a table that is already there, the answer has epoch and groups
        await runtime.wait_until_ready(name)
    headers = {"ETag": make_etag(record)}
    if created:
        headers["Location"] = f"/v1/jobs/{name}"
    return await answer_job(runtime, record, 201 if created else 200, headers)


@router.get("/jobs/{name}", dependencies=[VIEWER], responses=describe_responses(Job, 404))
async def get_job(request: Request, name: str) -> Response:
    """Return a job: its desired and actual state with the reason, epoch, watermark and lag."""
    runtime = runtime_of(request)
    record = find_view_record(runtime, name)
    with suppress(Problem):  # a job without results has a document too
        await runtime.wait_until_ready(name)
    return await answer_job(runtime, record, headers={"ETag": make_etag(record)})


@router.get("/jobs/{name}/plan", dependencies=[VIEWER], responses=describe_responses(JobPlan, 404))
async def get_plan(request: Request, name: str) -> Response:
    """Return the operators of the job's current spec, in the order of the data flow.

    `nodes` are those of the job's own query, `views` has those of each view.
    """
    runtime = runtime_of(request)
    spec = runtime.jobs.parse_spec(find_view_record(runtime, name))
    spec = spec.with_defaults(runtime.settings.time_defaults)
    nodes = await run_in_threadpool(
        lambda: {view: list_nodes(own, plan_of(own)) for view, own in spec.view_specs.items()}
    )
    return answer(JobPlan(nodes.pop("", []), nodes))


@router.delete(
    "/jobs/{name}",
    dependencies=[ADMIN],
    status_code=204,
    response_class=Response,
    responses=describe_responses(None, 404, 409, 412, 422),
)
async def delete_job(
    request: Request,
    name: str,
    data: Annotated[
        Literal["keep", "drop"] | None, Query(description="keep or drop the table; required")
    ] = None,
    if_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Delete a stopped job; `data=drop` also removes its table.

    A later job with the same name and query continues from a kept table.
    """
    runtime = runtime_of(request)
    runtime.jobs.find_record(name)
    if data is None:
        detail = "choose what to do with the job's table: ?data=keep or ?data=drop"
        errors = {"query.data": "is required: keep or drop"}
        raise Problem("parameter-invalid", detail, errors=errors)
    await run_in_threadpool(runtime.delete, name, drop_data=data == "drop", if_match=if_match)
    return Response(status_code=204)


def _add_action(action: str, desired: Desired, summary: str) -> None:
    async def act(request: Request, name: str) -> Response:
        require_whole_job(name, action)
        runtime = runtime_of(request)
        runtime.jobs.find_record(name)
        again = action == "restart"
        await run_in_threadpool(runtime.supervisor.set_desired, name, desired, again=again)
        return await answer_job(runtime, runtime.jobs.find_record(name), 202)

    router.add_api_route(
        f"/jobs/{{name}}/{action}",
        act,
        methods=["POST"],
        name=f"{action}_job",
        description=f"{summary} The request is stored and carried out soon; it is idempotent.",
        dependencies=[OPERATOR],
        status_code=202,
        responses=describe_responses(Job, 404, 409, 429, status=202),
    )


_add_action("start", Desired.RUNNING, "Start the job.")
_add_action("resume", Desired.RUNNING, "Start a paused job again, from its offsets.")
_add_action("restart", Desired.RUNNING, "Restart a running job after its current epoch.")
_add_action("pause", Desired.PAUSED, "Stop the job after its current epoch, until it is resumed.")
_add_action("stop", Desired.STOPPED, "Stop the job after its current epoch.")


@router.get("/jobs/{name}/logs", dependencies=[OPERATOR], responses=describe_responses(Logs, 404))
async def get_logs(
    request: Request,
    name: str,
    limit: Annotated[int, Query(ge=1, le=LOG_LINES_MAX)] = 100,
    level: Annotated[Level, Query()] = "DEBUG",
) -> Response:
    """Return the newest lines of a job's log, oldest first."""
    require_whole_job(name, "logs")
    runtime = runtime_of(request)
    runtime.jobs.find_record(name)
    lines = await run_in_threadpool(
        job_log.read_tail, runtime.jobs.find_paths(name).log, limit, level
    )
    return answer(Logs(lines))
