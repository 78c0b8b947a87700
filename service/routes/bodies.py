"""Parse small JSON bodies; service.supervision.spec_body parses job specs."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from fastapi import Request

from service.problems import Problem

Body = TypeVar("Body", bound=msgspec.Struct)


async def parse_body(request: Request, form: type[Body], empty: bytes = b"{}") -> Body:
    """Return the body as a struct; a missing body is an empty object."""
    try:
        return msgspec.json.decode(await request.body() or empty, type=form)
    except (msgspec.DecodeError, RecursionError) as error:
        reason = str(error)[:300]
        if "unknown field" in reason:
            reason = f"{reason}; known: {', '.join(form.__struct_fields__)}"
        raise make_body_problem("body", reason) from None


def make_body_problem(path: str, reason: str) -> Problem:
    """Return the problem of one field of a body."""
    return Problem("body-invalid", 422, reason, errors=[{"path": path, "message": reason}])
