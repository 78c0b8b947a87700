"""Routes of a job's offsets: where it goes on in its topics, and the change of that by hand.

GET ──► newest epoch row, ends of the topics        ETag: the epoch
PATCH, DELETE ──► stopped? at that epoch? ──► operation: `retally offsets`, which asks the broker
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import Response

from schemas.table.epoch import EpochRow, Offsets
from service.access.requirements import needs
from service.access.tokens import Role
from service.problems import Problem
from service.routes.answering import answer, newest_of
from service.routes.bodies import body_invalid, body_of
from service.routes.documents import JobOffsets, Operation
from service.routes.examples import answers, body_schema
from service.routes.operations import OPERATION, RequestKey, accepted, asked_before, operation_asked
from service.runtime import Runtime, runtime_of

router = APIRouter(prefix="/v1", tags=["jobs"])

_viewer = Depends(needs(Role.VIEWER))
_admin = Depends(needs(Role.ADMIN))

_OFFSETS = {
    "epoch": 41,
    "moved": None,
    "topics": {"shop.product": {"0": {"next": 131, "end": 140, "lag": 9}}},
    "lag": {"records": 9},
}
_MOVED = {
    **OPERATION,
    "kind": "offsets",
    "arguments": {"epoch": 41, "offsets": {"shop.product": {"0": 12}}},
    "result": {"job": "items", "epoch": 42, "changed": True, "moved": 42},
}
_BODY = {
    "offsets": {
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "additionalProperties": {"type": "integer", "minimum": 0},
        },
    }
}
_PARTITION = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_OFFSET_MAX = 10**18 - 1

IfMatch = Annotated[
    str | None, Header(description="the epoch that the offsets were read at, as its ETag")
]


class _OffsetsBody(msgspec.Struct, forbid_unknown_fields=True):
    offsets: Offsets


@router.get(
    "/jobs/{name}/offsets",
    dependencies=[_viewer],
    responses=answers(JobOffsets, _OFFSETS, 404, 409),
)
async def offsets(request: Request, name: str) -> Response:
    """Where the job goes on in each partition, and how far that is from the end, where the
    broker says; the ETag is its epoch."""
    runtime = runtime_of(request)
    newest = newest_of(await runtime.ready(name))
    ends = runtime.lags.ends(name)
    topics = {
        topic: {
            partition: _of_partition(at, ends.get(topic, {}).get(partition))
            for partition, at in partitions.items()
        }
        for topic, partitions in newest.offsets.items()
    }
    document = {"epoch": newest.epoch, "moved": newest.moved, "topics": topics}
    document["lag"] = runtime.lags.of(name, newest)
    return answer(document, headers={"ETag": f'"{newest.epoch}"'})


def _of_partition(at: int, end: int | None) -> dict[str, int | None]:
    return {"next": at, "end": end, "lag": None if end is None else max(0, end - at)}


@router.patch(
    "/jobs/{name}/offsets",
    dependencies=[_admin],
    status_code=202,
    openapi_extra=body_schema(_BODY, {"offsets": {"shop.product": {"0": 12}}}, ["offsets"]),
    responses=answers(Operation, _MOVED, 404, 409, 412, 422, 429, status=202),
)
async def move_offsets(
    request: Request,
    name: str,
    if_match: IfMatch = None,
    idempotency_key: RequestKey = None,
) -> Response:
    """Let a stopped job go on from other offsets, as an epoch of its own. What is passed over is
    never counted, and what is read twice counts twice: from then on the results are not the query
    over the topic, and the job says so (`moved`)."""
    runtime = runtime_of(request)
    newest = newest_of(await runtime.ready(name))
    if (known := asked_before(runtime, name, "offsets", idempotency_key)) is not None:
        return accepted(known)
    asked = (await body_of(request, _OffsetsBody)).offsets
    _check(asked, runtime.follower(name).spec.source.topics)
    arguments = {"epoch": _fence(runtime, name, newest, if_match), "offsets": asked}
    return await operation_asked(request, name, "offsets", arguments, idempotency_key, alone=True)


@router.delete(
    "/jobs/{name}/offsets",
    dependencies=[_admin],
    status_code=202,
    responses=answers(Operation, _MOVED, 404, 409, 412, 429, status=202),
)
async def reset_offsets(
    request: Request,
    name: str,
    if_match: IfMatch = None,
    idempotency_key: RequestKey = None,
) -> Response:
    """Let a stopped job go on from `source.start`, with the state that it has: for offsets moved
    by hand, and of the same meaning."""
    runtime = runtime_of(request)
    newest = newest_of(await runtime.ready(name))
    if (known := asked_before(runtime, name, "offsets", idempotency_key)) is not None:
        return accepted(known)
    arguments = {"epoch": _fence(runtime, name, newest, if_match), "offsets": None}
    return await operation_asked(request, name, "offsets", arguments, idempotency_key, alone=True)


def _fence(runtime: Runtime, name: str, newest: EpochRow, if_match: str | None) -> int:
    """The epoch that the job is to be at; the command holds the table against it again."""
    tag = f'"{newest.epoch}"'
    if if_match is not None:
        wanted = {each.strip().removeprefix("W/") for each in if_match.split(",")}
        if not wanted & {"*", tag}:
            detail = f"job {name!r} is at epoch {newest.epoch}"
            raise Problem("epoch-moved", 412, detail, headers={"ETag": tag}, newest=newest.epoch)
    runtime.jobs.require_stopped(name)
    return newest.epoch


def _check(asked: Offsets, topics: tuple[str, ...]) -> None:
    """What can be told without the broker: names and numbers."""
    if not any(asked.values()):
        raise body_invalid("body.offsets", "names no partition")
    for topic, partitions in asked.items():
        if topic not in topics:
            reason = f"is no topic of this job, which reads {', '.join(topics)}"
            raise body_invalid(f"body.offsets.{topic[:80]}", reason)
        for partition, offset in partitions.items():
            place = f"body.offsets.{topic}.{partition[:80]}"
            if _PARTITION.fullmatch(partition) is None:
                raise body_invalid(place, "is no number of a partition")
            if not 0 <= offset <= _OFFSET_MAX:
                raise body_invalid(place, f"an offset is a whole number, 0 to {_OFFSET_MAX}")
