"""The service's end of the SQL workers (see jobs.querying.workers): a few warm processes.

    statement ──► an idle worker, or a new one ──► answer ──► the worker is idle again
                                   │
                                   ├─ it ends: only this statement is refused
                                   └─ the client leaves: the worker's socket is closed, so it ends

One worker more than those at work is kept idle, so that no statement waits for a start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from schemas import limits
from schemas.process.statements import SIZE, WORKERS_MODULE, StatementReply, StatementRequest, pack
from service.problems import Problem

log = logging.getLogger(__name__)

WORKERS_MAX = limits.SQL_AT_ONCE_MAX + limits.SQL_AT_ONCE_OF_ADMINS
# It reads tables and writes text, besides.
_SECONDS_MAX = 3 * limits.SQL_SECONDS_MAX
_ENDED = "the statement took more time or memory than it may; ask for less"
_FAILED = "the statement cannot be answered; the log of the service says why"


class StatementProblem(Problem):
    """A statement has no answer; `sqlstate` and `position` are for PostgreSQL's clients."""

    def __init__(self, detail: str, sqlstate: str, position: int | None = None) -> None:
        super().__init__("sql-refused", detail, errors={"sql": detail})
        self.sqlstate = sqlstate
        self.position = position


class WorkerEnded(Exception):
    """A worker has ended, or does not answer in time."""


class _Worker:
    """One worker, as the service knows it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def alive(self) -> bool:
        return not self._reader.at_eof() and not self._writer.is_closing()

    async def query(self, request: StatementRequest) -> tuple[StatementReply, bytes]:
        """Return the worker's reply and its answer; raise WorkerEnded if there is none."""
        try:
            self._writer.write(pack(request))
            return await self.receive()
        except BaseException:
            self.close()
            raise

    async def receive(self) -> tuple[StatementReply, bytes]:
        try:
            (size,) = SIZE.unpack(await self._reader.readexactly(SIZE.size))
            if size > limits.SQL_REPLY_BYTES_MAX:
                raise WorkerEnded
            packed = await self._reader.readexactly(size)
            reply = msgspec.json.decode(packed, type=StatementReply)
            if reply.size > limits.SQL_ANSWER_BYTES_MAX:
                raise WorkerEnded
            return reply, await self._reader.readexactly(reply.size)
        except (asyncio.IncompleteReadError, OSError, msgspec.DecodeError):
            raise WorkerEnded from None

    def close(self) -> None:
        """End the worker, also in the middle of a statement."""
        self._writer.transport.abort()


class SqlWorkers:
    """The workers of a service. Call it on the event loop only, except `close`."""

    def __init__(self, data: Path) -> None:
        self._data = data.absolute()
        self._spawner: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None  # to the spawner
        self._idle: list[_Worker] = []
        self._count = 0  # of idle workers and those at work
        self._spare: asyncio.Task[None] | None = None
        self._closed = False

    def warm(self) -> None:
        """Start the first worker soon, unless a statement starts it before."""
        asyncio.get_running_loop().call_later(limits.SQL_WARM_AFTER_SECONDS, self._keep_one_idle)

    async def answer(self, request: StatementRequest) -> tuple[StatementReply, bytes]:
        """Return the answer of a statement; raise a StatementProblem if there is none.

        If it is cancelled, its worker ends. The caller bounds how many run at once.
        """
        worker = await self._take()
        try:
            self._keep_one_idle()
            async with asyncio.timeout(_SECONDS_MAX):
                reply, body = await worker.query(request)
        except WorkerEnded:
            raise StatementProblem(_ENDED, "53000") from None
        except TimeoutError:
            late = f"no answer in {_SECONDS_MAX:g} s; ask for less"
            raise StatementProblem(late, "57014") from None
        else:
            if reply.last:
                worker.close()
        finally:
            self._give_back(worker)
        if reply.outcome == "failed":
            log.error("a statement failed: %s", reply.reason)
            raise StatementProblem(_FAILED, "XX000")
        if reply.outcome == "refused":
            raise StatementProblem(reply.reason, reply.code, reply.position)
        return reply, body

    def close(self) -> None:
        """End the spawner; the workers end when the service does."""
        self._closed = True
        if self._spawner is not None:
            self._spawner.kill()
            self._spawner.wait()

    async def _take(self) -> _Worker:
        while True:
            while self._idle:
                worker = self._idle.pop()
                if worker.alive:
                    return worker
                self._count -= 1
            if self._spare is None or self._spare.done():
                break
            await asyncio.shield(self._spare)  # nearer than a worker of our own
        self._count += 1
        try:
            return await self._start()
        except (WorkerEnded, OSError) as error:
            self._count -= 1
            log.error("no SQL worker has started: %s", error)
            raise StatementProblem(_FAILED, "XX000") from None
        except BaseException:
            self._count -= 1
            raise

    def _give_back(self, worker: _Worker) -> None:
        if worker.alive and not self._closed:
            self._idle.append(worker)
        else:
            self._count -= 1
            self._keep_one_idle()

    def _keep_one_idle(self) -> None:
        """Start a worker beside those at work, if none is idle and none is being started."""
        full = self._idle or self._count >= WORKERS_MAX or self._closed
        if not full and (self._spare is None or self._spare.done()):
            self._spare = asyncio.create_task(self._start_spare())

    async def _start_spare(self) -> None:
        self._count += 1
        try:
            self._idle.append(await self._start())
        except (WorkerEnded, OSError) as error:
            self._count -= 1
            log.error("no SQL worker has started: %s", error)

    async def _start(self) -> _Worker:
        """Start a worker; raise WorkerEnded if it is not ready in time."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._send_to_spawner(theirs)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        worker = _Worker(reader, writer)
        try:
            async with asyncio.timeout(limits.SQL_START_SECONDS_MAX):
                await worker.receive()
        except TimeoutError:
            worker.close()
            raise WorkerEnded from None
        except BaseException:
            worker.close()
            raise
        return worker

    def _send_to_spawner(self, connection: socket.socket) -> None:
        if (
            self._requests is not None
            and self._spawner is not None
            and self._spawner.poll() is None
        ):
            with suppress(OSError):
                socket.send_fds(self._requests, [b"w"], [connection.fileno()])
                return
        if self._spawner is not None:
            log.error("the spawner of SQL workers has ended; a new one starts")
        self._start_spawner()
        assert self._requests is not None
        try:
            socket.send_fds(self._requests, [b"w"], [connection.fileno()])
        except OSError:
            raise WorkerEnded from None

    def _start_spawner(self) -> None:
        if self._requests is not None:
            self._requests.close()
        self._requests, theirs = socket.socketpair()
        with theirs:
            self._spawner = subprocess.Popen(
                [sys.executable, "-m", WORKERS_MODULE, str(self._data)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONUTF8": "1"},
            )
