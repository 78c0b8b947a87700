"""The route of SQL over results: one SELECT, answered by a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

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
_SECONDS_MAX = 3 * limits.SQL_SECONDS_MAX  # the process also starts, reads tables, and writes text
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
        done = run_bounded(command, body.sql.encode("utf-8", "replace"))
    finally:
        _free.release()
    if done.late:
        raise _make_problem(f"no answer in {_SECONDS_MAX:g} s; ask for less")
    if len(done.answer) > limits.SQL_ANSWER_BYTES_MAX:
        size = limits.SQL_ANSWER_BYTES_MAX // 2**20
        raise _make_problem(f"the answer has more than {size} MiB; ask for less")
    if done.code == _REFUSED:
        raise _make_problem(done.errors.removeprefix("retally: "))
    if done.code:
        raise _make_problem("the statement took more time or memory than it may; ask for less")
    return done.answer, done.errors.splitlines()[-1].removeprefix("epochs: ")


class Ended(NamedTuple):
    """How a process ended; an answer beyond the limit is cut one byte after it."""

    code: int
    answer: bytes
    errors: str
    late: bool


def run_bounded(command: Sequence[str], statement: bytes) -> Ended:
    """Run a process within limits of time and output; the answer is in memory once."""
    late = threading.Event()

    def stop() -> None:
        late.set()
        process.kill()

    with (
        tempfile.TemporaryFile() as errors,  # a pipe that nobody reads would block the process
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONUTF8": "1"},
        ) as process,
    ):
        assert process.stdin is not None and process.stdout is not None
        timer = threading.Timer(_SECONDS_MAX, stop)
        timer.start()
        try:
            # The process reads the statement to its end before it writes, or has ended.
            with suppress(BrokenPipeError), process.stdin:
                process.stdin.write(statement)
            answer = process.stdout.read(limits.SQL_ANSWER_BYTES_MAX + 1)
            if len(answer) <= limits.SQL_ANSWER_BYTES_MAX:
                process.wait()
        finally:
            timer.cancel()
            process.kill()  # without effect on a process that has ended
        code = process.wait()
        errors.seek(0)
        text = errors.read(limits.SQL_ERROR_BYTES_MAX).decode("utf-8", "replace").strip()
    return Ended(code, answer, text, late.is_set())


def _make_problem(detail: str) -> Problem:
    errors = [{"path": "sql", "message": detail}]
    return Problem("sql-refused", 422, detail[: limits.REASON_CHARACTERS_MAX], errors=errors)
