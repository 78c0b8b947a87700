"""Attempts: process input of users in a child process, with limits on time and memory.

    request ──► one of few threads ──► reader spawner ──fork──► child: limited seconds and memory
                        ▲                                        │
                        └──────── value, or the reason ◄─────────┘

If a query would run for hours, or a spec grows while it is parsed, the kernel ends the child. The
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
from typing import Literal, TypeVar

from schemas import limits
from schemas.process.kernel import read_process_memory
from service.problems import Problem

Given = TypeVar("Given")
Limit = Literal["seconds", "bytes", "end"]

_NICENESS = 5  # the service's responses come first
_REASONS: dict[Limit, str] = {
    "seconds": f"it took more than {limits.ATTEMPT_SECONDS_MAX:.0f} s",
    "bytes": f"it needed more than {limits.ATTEMPT_BYTES_MAX // 1024**2} MiB of memory",
    "end": "its process ended, probably for lack of memory",
}


class Attempts:
    """Runs work in child processes."""

    def __init__(
        self, fork: Callable[[], Connection], at_once: int = limits.ATTEMPTS_AT_ONCE_MAX
    ) -> None:
        self._fork = fork
        self._threads = ThreadPoolExecutor(at_once, "attempt")
        self._running = 0

    def close(self) -> None:
        """Start no more attempts. Nobody waits for the running ones: the kernel ends them."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, work: Callable[[], Given]) -> Given:
        """Run `work` in a child process; return its value or raise its exception.

        Work and value have to pickle. Raise a Problem if the child exceeds a limit. Call it on the
        event loop only. Attempts have their own threads, so that they delay no other requests.
        """
        if self._running >= limits.ATTEMPTS_WAITING_MAX:
            detail = (
                f"{limits.ATTEMPTS_WAITING_MAX} requests of this kind are waiting; try again later"
            )
            raise Problem("too-many-requests", detail, headers={"Retry-After": "5"})
        self._running += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, self._run_in_child, work
            )
        finally:
            self._running -= 1

    def _run_in_child(self, work: Callable[[], Given]) -> Given:
        began = time.monotonic()
        with self._fork() as connection:
            try:
                connection.send(work)
                if not connection.poll(
                    limits.ATTEMPT_SECONDS_MAX + limits.ATTEMPT_START_SECONDS_MAX
                ):
                    raise EOFError
                kind, result = connection.recv()
            except (EOFError, OSError):  # the child has ended, usually by its alarm
                late = time.monotonic() - began >= limits.ATTEMPT_SECONDS_MAX
                kind, result = "exceeded", "seconds" if late else "end"
        if kind == "raised":
            raise result
        if kind == "exceeded":
            raise Problem(
                "attempt-too-large", f"the service stopped the attempt: {_REASONS[result]}"
            )
        value: Given = result
        return value


def run_attempt(connection: Connection) -> None:
    """Run one piece of work in a forked child, and send its result."""
    # The alarm has no handler, so the kernel ends the process in any code.
    signal.setitimer(signal.ITIMER_REAL, limits.ATTEMPT_SECONDS_MAX)
    os.nice(_NICENESS)
    _limit_memory()
    reply: tuple[str, object]
    try:
        reply = ("value", connection.recv()())
    except MemoryError:
        reply = ("exceeded", "bytes")
    except Exception as error:
        reply = ("raised", error)
    with suppress(OSError):  # the service has ended
        connection.send(reply)


def _limit_memory() -> None:
    """Limit the memory of the process, beyond the memory shared with its parent."""
    memory = read_process_memory()
    if memory is not None:  # otherwise only time is limited
        most = memory.address_space + limits.ATTEMPT_BYTES_MAX
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
