"""The route of SQL over results: one SELECT, answered by a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Literal

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas import limits
from service.access.requirements import require_role
from service.access.tokens import Role
from service.problems import Problem
from service.routes.bodies import parse_body
from service.routes.documents import SqlAnswer
from service.routes.examples import SQL_ANSWER, describe_body, describe_responses
from service.runtime import runtime_of

router = APIRouter(prefix="/v1", tags=["results"])

_MEDIA = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.stream",
}
_REFUSED = 2  # the exit code of a statement that cannot be answered
_free = threading.Semaphore(limits.SQL_AT_ONCE_MAX)


class SqlBody(msgspec.Struct, forbid_unknown_fields=True):
    sql: str
    format: Literal["json", "arrow", "csv"] = "json"


@router.post(
    "/sql",
    dependencies=[Depends(require_role(Role.VIEWER))],
    openapi_extra=describe_body(
        {"sql": {"type": "string"}, "format": {"enum": list(_MEDIA)}},
        {"sql": "SELECT * FROM items AT EPOCH 41", "format": "json"},
        ["sql"],
    ),
    responses=describe_responses(
        SqlAnswer,
        SQL_ANSWER,
        413,
        422,
        429,
        media={"text/csv": "name,sum_cnt", "application/vnd.apache.arrow.stream": None},
    ),
)
async def answer_sql(request: Request) -> Response:
    """Answer one SELECT over the results of all jobs.

    Each job is a table; `items AT EPOCH 41` and `items AT TIME '...'` are its past. The header
    Retally-Epochs has the epoch of each table, as JSON.
    """
    body = await parse_body(request, SqlBody)
    data = str(runtime_of(request).settings.paths.data)
    answer, epochs = await run_in_threadpool(_run_query, data, body)
    return Response(answer, media_type=_MEDIA[body.format], headers={"Retally-Epochs": epochs})


def _run_query(data: str, body: SqlBody) -> tuple[bytes, str]:
    """Return the answer to a statement, and the epochs that it read."""
    if not _free.acquire(blocking=False):
        detail = f"{limits.SQL_AT_ONCE_MAX} statements are being answered; try again"
        raise Problem("too-many-requests", 429, detail, headers={"Retry-After": "1"})
    form = "document" if body.format == "json" else body.format
    command = [sys.executable, "-m", "jobs.cli.main", "sql", "-", "--data", data, "--format", form]
    try:
        done = subprocess.run(
            command,
            input=body.sql.encode("utf-8", "replace"),
            capture_output=True,
            timeout=3 * limits.SQL_SECONDS_MAX,
            env={**os.environ, "PYTHONUTF8": "1"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _make_problem(
            f"no answer in {3 * limits.SQL_SECONDS_MAX:g} s; ask for less"
        ) from None
    finally:
        _free.release()
    errors = done.stderr.decode("utf-8", "replace").strip()
    if done.returncode == _REFUSED:
        raise _make_problem(errors.removeprefix("retally: "))
    if done.returncode:
        raise _make_problem("the statement took more time or memory than it may; ask for less")
    return done.stdout, errors.splitlines()[-1].removeprefix("epochs: ")


def _make_problem(detail: str) -> Problem:
    errors = [{"path": "sql", "message": detail}]
    return Problem("sql-refused", 422, detail[: limits.REASON_CHARACTERS_MAX], errors=errors)
