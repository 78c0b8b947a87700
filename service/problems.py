"""Problems: every refusal of the service as RFC 9457 problem+json, with a code that stays.

    raise Problem("job-unknown", 404, "there is no job 'x'") ──► application/problem+json
    anything else that is raised ──► code "internal", an incident number here and in the log

The code is for programs and never changes; title and detail are for people. No answer holds a
stack, a path of this machine or a value of a secret.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from schemas import limits
from schemas.spec import file as spec_file

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"

# What each code means, in the words that never change with the case.
TITLES = {
    "accept-unsupported": "None of the accepted media types is served here",
    "address-refused": "The brokers send clients to an address that is not allowed",
    "approval-needed": "A pending spec has to be approved first",
    "attempt-too-large": "What was to be tried takes too much time or memory",
    "body-invalid": "The body is not what is expected here",
    "body-too-large": "The body is too large",
    "broker-silent": "The brokers gave no answer",
    "column-unknown": "The results have no such column",
    "csrf-refused": "A change by a browser's session needs its word",
    "cursor-invalid": "The cursor is not one of this listing",
    "epoch-moved": "The job is at another epoch",
    "epoch-not-reached": "The epoch was not reached in time",
    "epoch-unknown": "There is no such epoch",
    "forbidden": "The token's role does not allow this",
    "group-unknown": "There is no such group",
    "history-gone": "That history has been cleaned up",
    "host-refused": "The request came by a name or a page that is not this service's",
    "internal": "Something failed inside the service",
    "job-exists": "The job exists already",
    "job-has-no-table": "The job has not begun yet",
    "job-not-ready": "The job's results are not ready yet",
    "job-not-stopped": "The job must be stopped first",
    "job-unknown": "There is no such job",
    "key-invalid": "The key does not name a group of this job",
    "message-refused": "The job would refuse that message",
    "message-replayed": "The message was sent again already",
    "method-not-allowed": "The resource does not take this method",
    "not-found": "There is no such resource",
    "nothing-pending": "There is nothing to approve",
    "operation-failed": "The operation failed",
    "operation-unfinished": "Another operation is at work on the job",
    "operation-unknown": "There is no such operation",
    "parameter-invalid": "A parameter is not what is expected here",
    "parameter-unknown": "The resource has no such parameter",
    "query-fixed": "The query of a job that has begun is fixed",
    "query-too-slow": "The question took too long",
    "revision-mismatch": "The job is at another revision",
    "savepoint-exists": "The savepoint exists already",
    "savepoint-unknown": "There is no such savepoint",
    "state-insufficient": "The job's state does not answer the changed query",
    "spec-invalid": "The job spec cannot be taken",
    "table-unreadable": "The job's table cannot be read by this version",
    "topic-unknown": "There is no such topic",
    "too-busy": "The service has too many requests at work",
    "too-many-followers": "Too many followers at once",
    "too-many-jobs": "There are too many jobs",
    "too-many-requests": "Too many such requests at once",
    "too-many-running": "There are as many running jobs as there may be",
    "unauthorized": "A valid bearer token is needed",
}


class Problem(Exception):
    """A refusal, as the client is told of it."""

    def __init__(
        self,
        code: str,
        status: int,
        detail: str,
        *,
        errors: Sequence[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
        **further: Any,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.status = status
        self.detail = detail
        self.errors = list(errors)
        self.headers = dict(headers or {})
        self.further = further

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "type": f"urn:retally:problem:{self.code}",
            "title": TITLES[self.code],
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
        }
        if self.errors:
            document["errors"] = self.errors
        return document | self.further

    def response(self) -> Response:
        return Response(
            msgspec.json.encode(self.document()),
            self.status,
            media_type=MEDIA_TYPE,
            headers={"Cache-Control": "no-store", **self.headers},
        )


def spec_problem(error: spec_file.SpecError) -> Problem:
    """Everything that is wrong with a spec, each with its key and its place in the body."""
    errors = [
        {"path": each.path, "message": each.reason, "line": each.line, "column": each.column}
        for each in error.problems
    ]
    count = len(errors)
    detail = f"{count} {'thing is' if count == 1 else 'things are'} wrong with the spec"
    return Problem("spec-invalid", 422, detail, errors=errors)


_BY_STATUS = {404: "not-found", 405: "method-not-allowed", 400: "body-invalid"}


def _methods(app: FastAPI, path: str) -> list[str]:
    """What a path takes; a route knows only its own method."""
    found: set[str] = set()
    for pattern, methods in app.openapi()["paths"].items():
        if re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(pattern)), path):
            found |= {method.upper() for method in methods}
    return sorted(found)


def install(app: FastAPI) -> None:
    """Whatever a handler raises becomes a problem."""

    async def on_problem(_: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return error.response()

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = _BY_STATUS.get(error.status_code, "body-invalid")
        path = request.url.path[:200]
        detail = {
            "not-found": f"there is nothing at {path}",
            "method-not-allowed": f"{path} does not take {request.method[:20]}",
        }.get(code, "the request cannot be read")
        headers = dict(error.headers or {})
        if code == "method-not-allowed":
            headers["Allow"] = ", ".join(_methods(app, request.url.path))
        return Problem(code, error.status_code, detail, headers=headers).response()

    async def on_parameters(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        errors = [
            {"path": ".".join(map(str, each["loc"])), "message": str(each["msg"])}
            for each in list(error.errors())[: limits.PROBLEMS_MAX]
        ]
        of_body = any(str(each["path"]).startswith("body") for each in errors)
        code = "body-invalid" if of_body else "parameter-invalid"
        named = ", ".join(dict.fromkeys(str(each["path"]) for each in errors))
        return Problem(code, 422, f"see {named}", errors=errors).response()

    async def on_spec(_: Request, error: Exception) -> Response:
        assert isinstance(error, spec_file.SpecError)
        return spec_problem(error).response()

    async def on_anything(_: Request, error: Exception) -> Response:
        incident = uuid4().hex[:12]
        log.error("incident %s", incident, exc_info=error)
        detail = f"see incident {incident} in the service's log"
        return Problem("internal", 500, detail, incident=incident).response()

    async def on_gone(_: Request, _error: Exception) -> Response:
        """The client went away before it had asked: nobody reads this, and it is no incident."""
        return Response(status_code=400)

    app.add_exception_handler(Problem, on_problem)
    app.add_exception_handler(ClientDisconnect, on_gone)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_parameters)
    app.add_exception_handler(spec_file.SpecError, on_spec)
    app.add_exception_handler(Exception, on_anything)
