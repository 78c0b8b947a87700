"""Answer a statement of a client, as long as the client wants it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from schemas.process.statements import StatementReply, StatementRequest, WorkerRequest
from service.access.tokens import Role
from service.problems import Problem
from service.request_counts import StatementCounts
from service.sql.queue import SqlQueue
from service.sql.workers import SqlWorkers, StatementProblem


class SqlAnswers:
    """The queue and the workers of a service. Call it on the event loop, except `workers.close`."""

    def __init__(self, data: Path) -> None:
        self.workers = SqlWorkers(data)
        self.counts = StatementCounts()
        self._queue = SqlQueue()

    async def answer(
        self,
        request: StatementRequest,
        name: str,
        role: Role,
        shared: bool,
        leaving: Coroutine[Any, Any, object],
    ) -> tuple[StatementReply, bytes]:
        """Return the answer of a statement; give it up when `leaving` returns: its client has left.

        Raise a Problem if there is none. `shared` means that other clients have the same name.
        """
        began, outcome = time.monotonic(), "cancelled"
        left = asyncio.create_task(leaving)
        work = asyncio.create_task(self._answer_when_free(request, name, role, shared))
        try:
            await asyncio.wait((left, work), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise StatementProblem("the client has closed the connection", "57014")
            answered = await work
            outcome = "answered"
            return answered
        except Problem as problem:
            if work.done():
                outcome = "busy" if problem.status == 429 else "refused"
            raise
        finally:
            protocol = "postgres" if isinstance(request, WorkerRequest) else "http"
            self.counts.count(protocol, outcome, time.monotonic() - began)
            left.cancel()
            work.cancel()

    async def _answer_when_free(
        self, request: StatementRequest, name: str, role: Role, shared: bool
    ) -> tuple[StatementReply, bytes]:
        async with self._queue.hold(name, role, shared):
            return await self.workers.answer(request)
