"""Problems: every error response as RFC 9457 problem+json, with a stable code.

    raise Problem("job-unknown", "there is no job 'x'") ──► application/problem+json
                                                           status, title, retryable and advice
                                                           from the catalogue of failures
    any other exception ──► code "internal" with an incident number, which is also in the log

Programs decide by the code, which never changes; title and detail are for people. A response never
contains a stack trace, a path of this machine or a secret.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from schemas import limits
from schemas.documents import answers
from schemas.documents.answers import SpecNote
from schemas.failures.catalogue import failure_kinds
from schemas.spec import file as spec_file
from schemas.types.json_types import JsonObject
from service.request_ids import current_id

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"


class Problem(Exception):
    """An error response; `extensions` are additional members of its document.

    `errors` are what is wrong by its path, or with its position. `status` is for a code with
    several statuses.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        status: int | None = None,
        errors: Sequence[Mapping[str, Any] | SpecNote] | Mapping[str, str] = (),
        headers: Mapping[str, str] | None = None,
        **extensions: Any,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.kind = failure_kinds()[code]
        self.status = status or self.kind.status[0]
        self.detail = detail
        if isinstance(errors, Mapping):
            errors = [{"path": path, "message": message} for path, message in errors.items()]
        self.errors: list[JsonObject] = msgspec.to_builtins(errors)
        self.headers = dict(headers or {})
        self.extensions = extensions

    def document(self) -> JsonObject:
        document: JsonObject = msgspec.to_builtins(
            answers.Problem(
                type=f"urn:retally:problem:{self.code}",
                title=self.kind.title,
                status=self.status,
                code=self.code,
                detail=self.detail,
                retryable=self.kind.retryable,
                advice=self.kind.plain_advice,
                errors=self.errors or msgspec.UNSET,
            )
        )
        return document | self.extensions

    def response(self) -> Response:
        return Response(
            msgspec.json.encode(self.document()),
            self.status,
            media_type=MEDIA_TYPE,
            headers={"Cache-Control": "no-store", **self.headers},
        )


def make_parameter_problem(path: str, reason: str) -> Problem:
    """Return the problem of one parameter, such as query.as_of."""
    return Problem("parameter-invalid", reason, errors={path: reason})


def describe_spec_problem(problem: spec_file.Problem) -> SpecNote:
    """Return one error or note of a spec, with its key and its position in the body."""
    return SpecNote(problem.path, problem.reason, problem.line, problem.column)


def make_spec_problem(error: spec_file.SpecError) -> Problem:
    """Return all errors of a spec, each with its key and its position in the body."""
    errors = [describe_spec_problem(each) for each in error.problems]
    count = len(errors)
    detail = f"the spec has {count} {'error' if count == 1 else 'errors'}"
    return Problem("spec-invalid", detail, errors=errors)


_BY_STATUS = {404: "not-found", 405: "method-not-allowed", 400: "body-invalid"}
_METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")


def _find_methods(request: Request, path: str) -> list[str]:
    """Return the methods with which some route takes a path; a route knows only its own.

    `.../quarantine/replay` is also like `.../quarantine/{id}`: the one with fewer names counts.
    """
    found: dict[int, set[str]] = {}
    for pattern, methods in request.app.openapi()["paths"].items():
        if re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(pattern)), path):
            found.setdefault(pattern.count("{"), set()).update(map(str.upper, methods))
    taken = found[min(found)] if found else _find_methods_of_pages(request, path)
    if "GET" in taken:
        taken.add("HEAD")  # see service.middleware.gate
    return sorted(taken | {"OPTIONS"}) if taken else []


def _find_methods_of_pages(request: Request, path: str) -> set[str]:
    """Return the methods of a path that the description does not have."""
    scopes = {method: {**request.scope, "path": path, "method": method} for method in _METHODS}
    return {
        method
        for method, scope in scopes.items()
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)
    }


def _answer_without_route(request: Request, code: str) -> Response | None:
    """Return the response to OPTIONS, or to an address with a slash too many at its end."""
    path: str = request.scope["path"]
    if code == "method-not-allowed" and request.method == "OPTIONS":
        return Response(status_code=204, headers={"Allow": ", ".join(_find_methods(request, path))})
    if code == "not-found" and path.endswith("/") and _find_methods(request, path[:-1]):
        # Relative, because a proxy may serve us under another path. 308 keeps method and body.
        last = request.scope["raw_path"][:-1].rpartition(b"/")[2].decode("latin-1")
        query = f"?{request.url.query}" if request.url.query else ""
        return Response(status_code=308, headers={"Location": f"../{last}{query}"})
    return None


def install_handlers(app: FastAPI) -> None:
    """Answer every exception of a handler with a problem."""

    async def on_problem(_: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return error.response()

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = _BY_STATUS.get(error.status_code, "body-invalid")
        answered = _answer_without_route(request, code)
        if answered is not None:
            return answered
        path = request.url.path[:200]
        detail = {
            "not-found": f"there is no resource at {path}",
            "method-not-allowed": f"{path} does not support {request.method[:20]}",
        }.get(code, "the request cannot be parsed")
        headers = dict(error.headers or {})
        if code == "method-not-allowed":
            headers["Allow"] = ", ".join(_find_methods(request, request.scope["path"]))
        return Problem(code, detail, status=error.status_code, headers=headers).response()

    async def on_parameters(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        errors = [
            {"path": ".".join(map(str, each["loc"])), "message": str(each["msg"])}
            for each in list(error.errors())[: limits.PROBLEMS_MAX]
        ]
        of_body = any(str(each["path"]).startswith("body") for each in errors)
        code = "body-invalid" if of_body else "parameter-invalid"
        named = "; ".join(dict.fromkeys(f"{each['path']}: {each['message']}" for each in errors))
        return Problem(code, named, errors=errors).response()

    async def on_spec(_: Request, error: Exception) -> Response:
        assert isinstance(error, spec_file.SpecError)
        return make_spec_problem(error).response()

    async def on_anything(_: Request, error: Exception) -> Response:
        incident = current_id()
        log.error("incident %s", incident, exc_info=error)
        detail = f"the service's log has the details of incident {incident}"
        return Problem("internal", detail, incident=incident).response()

    async def on_gone(_: Request, _error: Exception) -> Response:
        """Answer a client that closed the connection while it sent its request."""
        return Response(status_code=400)

    app.add_exception_handler(Problem, on_problem)
    app.add_exception_handler(ClientDisconnect, on_gone)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_parameters)
    app.add_exception_handler(spec_file.SpecError, on_spec)
    app.add_exception_handler(Exception, on_anything)
