"""Attempts: work on what a user gives to be tried, in a process of its own, within limits.

    request ──► one of few threads ──► nursery ──fork──► child: so many seconds, so much memory
                        ▲                                  │
                        └────── value, or why not ◄────────┘

A query that would run for hours, or a spec that grows while it is read, ends with its child. The
service answers other requests meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal, TypeVar

from schemas.limits import (
    ATTEMPT_BYTES_MAX,
    ATTEMPT_SECONDS_MAX,
    ATTEMPTS_AT_ONCE_MAX,
    ATTEMPTS_WAITING_MAX,
)
from service.problems import Problem

Given = TypeVar("Given")
Limit = Literal["seconds", "bytes", "end"]

_NICENESS = 5  # beside the service, whose answers come first
_START_SECONDS_MAX = 5.0  # of a child on a busy machine
_WHY: dict[Limit, str] = {
    "seconds": f"it took more than {ATTEMPT_SECONDS_MAX:.0f} s",
    "bytes": f"it needed more than {ATTEMPT_BYTES_MAX // 1024**2} MiB of memory",
    "end": "its process ended, perhaps for want of memory",
}


class Attempts:
    """The service's end."""

    def __init__(self, begin: Callable[[], Connection]) -> None:
        self._begin = begin
        self._threads = ThreadPoolExecutor(ATTEMPTS_AT_ONCE_MAX, "attempt")
        self._asked = 0

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    async def run(self, work: Callable[[], Given]) -> Given:
        """Return what `work` returns in a child process; both have to pickle. Raise what it raises,
        and a Problem where it passes a limit. Call it on the event loop only.

        It has threads of its own, so that those who wait for one keep no other request waiting."""
        if self._asked >= ATTEMPTS_WAITING_MAX:
            detail = f"{ATTEMPTS_WAITING_MAX} specs are being checked or tried already; try again"
            raise Problem("too-many-requests", 429, detail, headers={"Retry-After": "5"})
        self._asked += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, self._in_child, work
            )
        finally:
            self._asked -= 1

    def _in_child(self, work: Callable[[], Given]) -> Given:
        began = time.monotonic()
        with self._begin() as connection:
            try:
                connection.send(work)
                if not connection.poll(ATTEMPT_SECONDS_MAX + _START_SECONDS_MAX):
                    raise EOFError
                kind, found = connection.recv()
            except (EOFError, OSError):  # the child has ended, by its alarm in most cases
                late = time.monotonic() - began >= ATTEMPT_SECONDS_MAX
                kind, found = "passed", "seconds" if late else "end"
        if kind == "raised":
            raise found
        if kind == "passed":
            raise Problem("attempt-too-large", 422, f"this was given up: {_WHY[found]}")
        value: Given = found
        return value


def attempt(connection: Connection) -> None:
    """The life of a child: one piece of work."""
    # Nobody handles the alarm, so the kernel ends the process whatever code it is in.
    signal.setitimer(signal.ITIMER_REAL, ATTEMPT_SECONDS_MAX)
    os.nice(_NICENESS)
    _bound_memory()
    reply: tuple[str, object]
    try:
        reply = ("value", connection.recv()())
    except MemoryError:
        reply = ("passed", "bytes")
    except Exception as error:
        reply = ("raised", error)
    with suppress(OSError):  # the service has ended
        connection.send(reply)


def _bound_memory() -> None:
    """Bound what the process may take beside what it shares with its parent."""
    with suppress(FileNotFoundError):  # no Linux: time is bounded alone
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + ATTEMPT_BYTES_MAX
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
