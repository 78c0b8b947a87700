"""Routes of a job's offsets: read them, and move them manually.

GET ──► newest epoch row, ends of the topics        ETag: the epoch
PATCH, DELETE ──► stopped? at that epoch? ──► operation: `retally offsets`
"""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Header, Request
from fastapi.responses import Response

from schemas.documents.answers import JobOffsets, PartitionOffsets
from schemas.documents.bodies import OffsetsBody
from schemas.table.epoch import EpochRow, Offsets
from schemas.types.json_types import JsonObject
from service.access.requirements import ADMIN, VIEWER
from service.problems import Problem
from service.routes.answering import answer, make_body_problem, parse_body
from service.routes.examples import describe_responses
from service.routes.operations import (
    RequestKey,
    answer_accepted,
    describe_submission,
    find_repeated,
    submit_operation,
)
from service.routes.views import require_whole_job
from service.runtime import Runtime, runtime_of

router = APIRouter(prefix="/v1", tags=["jobs"])

_MOVED: JsonObject = {
    "kind": "offsets",
    "arguments": {"epoch": 41, "offsets": {"shop.product": {"0": 12}}},
    "result": {"job": "items", "epoch": 42, "changed": True, "moved": 42},
}
_PARTITION = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_OFFSET_MAX = 10**18 - 1

IfMatch = Annotated[str | None, Header(description="the ETag of GET: the epoch of the offsets")]


@router.get(
    "/jobs/{name}/offsets",
    dependencies=[VIEWER],
    responses=describe_responses(JobOffsets, 404, 409),
)
async def get_offsets(request: Request, name: str) -> Response:
    """Return the next offset of each partition, and its lag if the brokers respond."""
    runtime = runtime_of(request)
    live_table = await runtime.wait_until_ready(name)
    newest, spec = live_table.require_newest(), live_table.spec
    job = name.partition(".")[0]  # all views of a job are at the same offsets
    ends = runtime.lags.find_ends(job)
    topics = {
        topic: {
            partition: _describe_partition(at, ends.get(topic, {}).get(partition))
            for partition, at in partitions.items()
        }
        for topic, partitions in newest.offsets.items()
    }
    sources = None
    if spec.sources is not None:
        sources = {source: list(names) for source, names in spec.topics_by_source.items()}
    lag = runtime.lags.compute_lag(job, spec, newest)
    document = JobOffsets(newest.epoch, newest.moved, topics, lag, sources)
    return answer(document, headers={"ETag": f'"{newest.epoch}"'})


def _describe_partition(at: int, end: int | None) -> PartitionOffsets:
    return PartitionOffsets(at, end, None if end is None else max(0, end - at))


@router.patch(
    "/jobs/{name}/offsets",
    dependencies=[ADMIN],
    **describe_submission(OffsetsBody, 412, **_MOVED),
)
async def move_offsets(
    request: Request, name: str, if_match: IfMatch = None, idempotency_key: RequestKey = None
) -> Response:
    """Let a stopped job continue from other offsets, in a new epoch.

    Skipped records are never counted, and records read twice count twice. From then on, the results
    do not cover all rows of the topic; the job's document reports this epoch as `moved`.
    """
    require_whole_job(name, "offsets")
    runtime = runtime_of(request)
    newest = (await runtime.wait_until_ready(name)).require_newest()
    if (known := find_repeated(runtime, name, "offsets", idempotency_key)) is not None:
        return answer_accepted(known)
    wanted = (await parse_body(request, OffsetsBody)).offsets
    _check_offsets(wanted, runtime.find_live_table(name).spec.topics)
    arguments = {"epoch": _fence(runtime, name, newest, if_match), "offsets": wanted}
    return await submit_operation(request, name, "offsets", arguments, idempotency_key, alone=True)


@router.delete(
    "/jobs/{name}/offsets", dependencies=[ADMIN], **describe_submission(None, 412, **_MOVED)
)
async def reset_offsets(
    request: Request, name: str, if_match: IfMatch = None, idempotency_key: RequestKey = None
) -> Response:
    """Let a stopped job continue from the `start` of its sources, with its state; see PATCH."""
    require_whole_job(name, "offsets")
    runtime = runtime_of(request)
    newest = (await runtime.wait_until_ready(name)).require_newest()
    if (known := find_repeated(runtime, name, "offsets", idempotency_key)) is not None:
        return answer_accepted(known)
    arguments = {"epoch": _fence(runtime, name, newest, if_match), "offsets": None}
    return await submit_operation(request, name, "offsets", arguments, idempotency_key, alone=True)


def _fence(runtime: Runtime, name: str, newest: EpochRow, if_match: str | None) -> int:
    """Return the job's epoch if the conditions hold; the command checks it again."""
    tag = f'"{newest.epoch}"'
    if if_match is not None:
        wanted = {each.strip().removeprefix("W/") for each in if_match.split(",")}
        if not wanted & {"*", tag}:
            detail = f"job {name!r} is at epoch {newest.epoch}"
            raise Problem("epoch-moved", detail, headers={"ETag": tag}, newest=newest.epoch)
    runtime.jobs.require_stopped(name)
    return newest.epoch


def _check_offsets(wanted: Offsets, topics: tuple[str, ...]) -> None:
    """Check what needs no broker: names and numbers."""
    if not any(wanted.values()):
        raise make_body_problem("body.offsets", "names no partition")
    for topic, partitions in wanted.items():
        if topic not in topics:
            reason = f"is not a topic of this job, which reads {', '.join(topics)}"
            raise make_body_problem(f"body.offsets.{topic[:80]}", reason)
        for partition, offset in partitions.items():
            path = f"body.offsets.{topic}.{partition[:80]}"
            if _PARTITION.fullmatch(partition) is None:
                raise make_body_problem(path, "is not a partition number")
            if not 0 <= offset <= _OFFSET_MAX:
                raise make_body_problem(path, f"an offset is an integer from 0 to {_OFFSET_MAX}")
