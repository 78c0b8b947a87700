"""Bounded protocol: limits on what one connection may cost.

    connection ──► waiting ── whole request ──► at work ── response ──► waiting (kept alive)
                      │ too slow: 408   head too large: 431
                      │                          └ response not read: waiting
                      └ too many wait: the connection that has waited longest is closed

uvicorn limits neither the time nor the size of a request's head, and counts every connection: a
thousand idle connections would make it answer 503 to everyone. Here a client that sends its request
promptly is served, however many idle connections there are. uvicorn also parses and queues as many
requests as a client sends before it reads a response. Here the bytes are parsed in slices. After a
few unanswered requests the rest is dropped, and the last response has `Connection: close`.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from schemas import limits
from service.limits.capacity import Capacity


class _OpenTransport:
    """A transport that ignores calls after it was closed.

    uvloop's transport raises, so each request of a vanished client would log a stack trace.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()


class BoundedProtocol(HttpToolsProtocol):
    """One connection; `waiting` has all idle connections, the longest first."""

    waiting: ClassVar[dict[BoundedProtocol, None]] = {}
    capacity: ClassVar[Capacity] = Capacity()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._head_complete = False
        self._at_work: RequestResponseCycle | None = None  # uvicorn's `cycle` is the newest
        self._surplus = False  # too many unanswered requests: drop all further bytes

    # --- a connection ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(_OpenTransport(transport))  # type: ignore[arg-type]
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        # uvicorn informs only the newest request, so a stream followed by another would not end.
        self.pipeline.clear()
        if self._at_work is not None:
            self._at_work.disconnected = True
            self._at_work.message_event.set()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._at_work = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), limits.PARSED_AT_ONCE_BYTES):
            if self._surplus or self.transport.is_closing():
                return
            piece = data[start : start + limits.PARSED_AT_ONCE_BYTES]
            super().data_received(piece)
            if self._deadline is not None and not self._head_complete:
                self._head_bytes += len(piece)
                if self._head_bytes > limits.REQUEST_HEAD_BYTES_MAX:
                    self._refuse(431)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait()  # for the client to read its response

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unanswered:
            self.waiting.pop(self, None)

    # --- its requests ---------------------------------------------------------------------------

    @property
    def _unanswered(self) -> int:
        at_work = self.cycle is not None and not self.cycle.response_complete
        return len(self.pipeline) + at_work

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._unanswered >= limits.REQUESTS_UNANSWERED_MAX:
            self._surplus = True
            self.cycle.keep_alive = False
            return
        if self._deadline is None:  # not the first request of this connection
            self._expect_request()
        self._head_complete = False

    def on_headers_complete(self) -> None:
        if not self._surplus:
            self._head_complete = True
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._surplus:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._surplus:
            self._stop_waiting()
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._deadline is None and not self._unanswered:
            self._wait()  # for the next request; uvicorn closes an idle connection

    # --- bounds -----------------------------------------------------------------------------------

    def _expect_request(self) -> None:
        self._head_bytes = 0
        self._deadline = self.loop.call_later(limits.REQUEST_SECONDS_MAX, self._refuse, 408)
        self._wait()

    def _wait(self) -> None:
        if self.transport.is_closing() and not self.transport.get_write_buffer_size():
            return
        self.waiting.pop(self, None)
        self.waiting[self] = None
        if len(self.waiting) > self.capacity.waiting or (
            len(self.connections) > self.capacity.connections
        ):
            longest = next(iter(self.waiting))
            longest._stop_waiting()
            longest.transport.abort()  # close() would wait for a client that reads nothing

    def _stop_waiting(self) -> None:
        self.waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, status: int) -> None:
        """Close the connection; send the status unless a response has started."""
        self._stop_waiting()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            head = b"content-length: 0\r\nconnection: close\r\n\r\n"
            self.transport.write(STATUS_LINE[status] + head)
        self.transport.close()
