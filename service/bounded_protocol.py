"""Bounded protocol: what a connection may cost before it has asked for anything.

    connection ──► waiting ── whole request ──► at work ── answer ──► waiting (kept alive)
                      │ too slow: 408   head too large: 431
                      └ too many wait: the one that has waited longest is closed

uvicorn bounds neither the time nor the size of a request's head, and counts every connection: some
thousand that never ask would have everybody else refused. Whoever sends its request at once is
served beside any number of those that do not.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from schemas.limits import (
    REQUEST_HEAD_BYTES_MAX,
    REQUEST_SECONDS_MAX,
    WAITING_CONNECTIONS_MAX,
)


class BoundedProtocol(HttpToolsProtocol):
    """One connection; `waiting` has all that are not at work, the longest first."""

    waiting: ClassVar[dict[BoundedProtocol, None]] = {}

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._head_complete = False

    # --- a connection ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._deadline is not None and not self._head_complete:
            self._head_bytes += len(data)
            if self._head_bytes > REQUEST_HEAD_BYTES_MAX:
                self._refuse(431)

    # --- its requests ---------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._deadline is None:  # not the first one on this connection
            self._expect_request()
        self._head_complete = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_complete = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._deadline is None and self.cycle.response_complete:
            self._wait()  # for the next one; uvicorn closes it when none comes

    # --- bounds -----------------------------------------------------------------------------------

    def _expect_request(self) -> None:
        self._head_bytes = 0
        self._deadline = self.loop.call_later(REQUEST_SECONDS_MAX, self._refuse, 408)
        self._wait()

    def _wait(self) -> None:
        if self.transport.is_closing():
            return
        self.waiting.pop(self, None)
        self.waiting[self] = None
        while len(self.waiting) > WAITING_CONNECTIONS_MAX:
            longest = next(iter(self.waiting))
            longest._stop_waiting()
            longest.transport.close()

    def _stop_waiting(self) -> None:
        self.waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, status: int) -> None:
        """Unless an answer is on its way already, say why."""
        self._stop_waiting()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            head = b"content-length: 0\r\nconnection: close\r\n\r\n"
            self.transport.write(STATUS_LINE[status] + head)
        self.transport.close()
