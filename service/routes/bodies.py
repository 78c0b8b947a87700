"""Bodies of requests that are small JSON objects; a job spec has service.supervision.spec_body."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from fastapi import Request

from service.problems import Problem

Body = TypeVar("Body", bound=msgspec.Struct)


async def body_of(request: Request, form: type[Body], empty: bytes = b"{}") -> Body:
    """The body as a struct; a missing one is an empty object."""
    try:
        return msgspec.json.decode(await request.body() or empty, type=form)
    except (msgspec.DecodeError, RecursionError) as error:
        raise body_invalid("body", str(error)[:300]) from None


def body_invalid(path: str, reason: str) -> Problem:
    return Problem("body-invalid", 422, reason, errors=[{"path": path, "message": reason}])
