"""The route of SQL over results: one SELECT, answered by a process of its own."""

from __future__ import annotations

import asyncio
import json
import logging
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
from service.answers.event_stream import wait_for_disconnect
from service.documents import SqlAnswer
from service.problems import Problem
from service.routes.answering import parse_body
from service.routes.examples import SQL_ANSWER, describe_body, describe_responses
from service.runtime import runtime_of

log = logging.getLogger(__name__)
router = APIRouter(prefix="/v1", tags=["results"])

_MEDIA = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.stream",
}
_REFUSED = 2  # the exit code of a statement that cannot be answered
_SECONDS_MAX = 3 * limits.SQL_SECONDS_MAX  # the process also starts, reads tables, and writes text
_NICENESS = 5  # jobs and the service's other responses come first


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
    request.state.reads = ()  # a refused statement read no table
    body = await parse_body(request, SqlBody)
    data = str(runtime_of(request).settings.paths.data)
    form = "document" if body.format == "json" else body.format
    command = [sys.executable, "-m", "jobs.cli.main", "sql", "-", "--data", data, "--format", form]
    process = BoundedProcess(command)
    with runtime_of(request).sql_slots.hold(request):
        ended = await _run_while_wanted(request, process, body.sql.encode("utf-8", "replace"))
    answer, epochs = _check(ended)
    request.state.reads = tuple(json.loads(epochs))
    return Response(answer, media_type=_MEDIA[body.format], headers={"Retally-Epochs": epochs})


async def _run_while_wanted(request: Request, process: BoundedProcess, statement: bytes) -> Ended:
    """Run a process to its end; stop it if the client closes the connection."""
    left = asyncio.create_task(wait_for_disconnect(request.receive))
    work = asyncio.create_task(run_in_threadpool(process.run, statement))
    try:
        await asyncio.wait((left, work), return_when=asyncio.FIRST_COMPLETED)
    finally:
        left.cancel()
        if not work.done():
            process.stop()
    return await work


def _check(done: Ended) -> tuple[bytes, str]:
    """Return the answer and the epochs that it read; raise a Problem if there is none."""
    if done.late:
        raise _make_problem(f"no answer in {_SECONDS_MAX:g} s; ask for less")
    if len(done.answer) > limits.SQL_ANSWER_BYTES_MAX:
        size = limits.SQL_ANSWER_BYTES_MAX // 2**20
        raise _make_problem(f"the answer has more than {size} MiB; ask for less")
    if done.code == _REFUSED:
        raise _make_problem(done.errors.removeprefix("retally: "))
    if done.code < 0:  # by a signal: that of a limit, or of the kernel without memory
        raise _make_problem("the statement took more time or memory than it may; ask for less")
    if done.code:
        log.error("a statement failed with exit code %d: %s", done.code, done.errors)
        raise _make_problem("the statement cannot be answered; the log of the service says why")
    return done.answer, done.errors.splitlines()[-1].removeprefix("epochs: ")


class Ended(NamedTuple):
    """How a process ended; an answer beyond the limit is cut one byte after it."""

    code: int
    answer: bytes
    errors: str
    late: bool


class BoundedProcess:
    """A process within limits of time and output."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        """End the process, from any thread."""
        self._stopped.set()
        if self._process is not None:
            self._process.kill()  # without effect on a process that has ended

    def run(self, statement: bytes) -> Ended:
        """Run the process; the answer is in memory once."""
        with (
            tempfile.TemporaryFile() as errors,  # a pipe that nobody reads would block the process
            subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONUTF8": "1"},
            ) as process,
        ):
            assert process.stdin is not None and process.stdout is not None
            self._process = process
            timer = threading.Timer(_SECONDS_MAX, self.stop)
            timer.start()
            try:
                # Beside our own: one that is below it may only be set by root.
                ours = os.getpriority(os.PRIO_PROCESS, 0)
                os.setpriority(os.PRIO_PROCESS, process.pid, ours + _NICENESS)
                if self._stopped.is_set():  # before there was a process
                    process.kill()
                # The process reads the statement to its end before it writes, or has ended.
                with suppress(BrokenPipeError), process.stdin:
                    process.stdin.write(statement)
                answer = process.stdout.read(limits.SQL_ANSWER_BYTES_MAX + 1)
                if len(answer) <= limits.SQL_ANSWER_BYTES_MAX:
                    process.wait()
            finally:
                timer.cancel()
                process.kill()
            code = process.wait()
            errors.seek(0)
            text = errors.read(limits.SQL_ERROR_BYTES_MAX).decode("utf-8", "replace").strip()
        return Ended(code, answer, text, self._stopped.is_set())


def _make_problem(detail: str) -> Problem:
    errors = [{"path": "sql", "message": detail}]
    return Problem("sql-refused", 422, detail[: limits.REASON_CHARACTERS_MAX], errors=errors)
