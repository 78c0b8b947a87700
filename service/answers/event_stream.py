"""The event stream: one follower of one job's changes, over server-sent events.

    snapshot (where asked for) ─► progress ─► changes of an epoch ─► progress ─► ... ─► heartbeat
       rows of epoch N              id N:last     id E:S              id E:last       a comment

A stream holds a place, and nothing of what it will send: when the socket takes more, the next
epochs are fetched. A socket that takes nothing for a while is closed; its client has the id of the
last row that it took, and comes back with it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator

import msgspec
from fastapi.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from schemas.limits import (
    FOLLOWER_STALL_SECONDS_MAX,
    HEARTBEAT_SECONDS,
    PAGE_ROWS_MAX,
)
from service.answers.changes import Place, behind, next_epochs, recent_epochs
from service.answers.listing import listing
from service.answers.results import Results
from service.live.follower import Follower
from service.live.pulse import beaten
from service.live.recent_changes import WHOLE, EpochChanges
from service.problems import Problem

log = logging.getLogger(__name__)

_PIECE_BYTES = 64 * 1024  # given to the socket at once; what a stalled one holds in memory
_LOOP_ROWS_MAX = 2_000  # rendered on the event loop; more goes to a thread
_encode = msgspec.json.Encoder().encode


class Events:
    """Server-sent events, for browsers."""

    media = b"text/event-stream; charset=utf-8"
    hello = b"retry: 1000\n\n"
    heartbeat = b": still here\n\n"

    @staticmethod
    def rows(epoch: EpochChanges, after: int, key: bytes | None) -> bytes:
        return epoch.events(after, key)

    @staticmethod
    def snapshot_row(document: bytes) -> bytes:
        return b"event: change\ndata: %b\n\n" % document

    @staticmethod
    def progress(epoch: int, document: bytes) -> bytes:
        """That the epoch is complete. It has an id, so that who filters by a key that never
        changes moves on all the same."""
        return b"event: progress\nid: %d:%d\ndata: %b\n\n" % (epoch, WHOLE, document)

    @staticmethod
    def columns(document: bytes) -> bytes:
        """That the query is another from here on; the rows that lead there follow."""
        return b"event: columns\ndata: %b\n\n" % document

    @staticmethod
    def gone(document: bytes) -> bytes:
        return b"event: gone\ndata: %b\n\n" % document


class Lines:
    """JSON lines, for programs: changes as they are, all else under a name of its own."""

    media = b"application/x-ndjson"
    hello = b""
    heartbeat = b"\n"

    @staticmethod
    def rows(epoch: EpochChanges, after: int, key: bytes | None) -> bytes:
        return b"".join(change.document + b"\n" for change in epoch.after(after, key))

    @staticmethod
    def snapshot_row(document: bytes) -> bytes:
        return document + b"\n"

    @staticmethod
    def progress(epoch: int, document: bytes) -> bytes:
        return b'{"progress":%b}\n' % document

    @staticmethod
    def columns(document: bytes) -> bytes:
        return b'{"columns":%b}\n' % document

    @staticmethod
    def gone(document: bytes) -> bytes:
        return b'{"gone":%b}\n' % document


class EventStream:
    """An answer that goes on; called as an ASGI application."""

    def __init__(
        self,
        follower: Follower,
        at: Place | None,
        key: bytes | None,
        results: Results,
        form: type[Events] | type[Lines],
    ) -> None:
        self._form = form
        self._follower = follower
        self._at = at  # None: begin with a snapshot
        self._key = key
        self._results = results

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", self._form.media),
            (b"cache-control", b"no-store, no-transform"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        leaving = asyncio.ensure_future(_gone(receive))
        sending = asyncio.ensure_future(self._send_all(send))
        try:
            await asyncio.wait({leaving, sending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            sending.cancel()
            await asyncio.gather(leaving, sending, return_exceptions=True)
        if sending.done() and not sending.cancelled() and sending.exception() is not None:
            # Without the body's end the client sees a broken stream, and comes back.
            log.info("a follower of job %s was let go: %r", self._name, sending.exception())

    @property
    def _name(self) -> str:
        return self._follower.places.name

    async def _send_all(self, send: Send) -> None:
        async for piece in self._pieces():
            for start in range(0, len(piece), _PIECE_BYTES):
                body = piece[start : start + _PIECE_BYTES]
                message = {"type": "http.response.body", "body": body, "more_body": True}
                async with asyncio.timeout(FOLLOWER_STALL_SECONDS_MAX):
                    await send(message)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pieces(self) -> AsyncIterator[bytes]:
        yield self._form.hello
        try:
            if self._at is None:
                async for piece in self._snapshot():
                    yield piece
            assert self._at is not None
            async for piece in self._following(self._at):
                yield piece
        except Problem as problem:  # the history went away behind a slow follower
            yield self._form.gone(_encode(problem.document()))

    async def _snapshot(self) -> AsyncIterator[bytes]:
        """The rows of one epoch, as insertions without ids: half a snapshot is no place."""
        progress: dict[str, object] = {}
        async for epoch, watermark, documents in self._snapshot_pages():
            head = b'{"op":"+I","epoch":%d,"snapshot":true,"row":' % epoch
            rows = (self._form.snapshot_row(head + row + b"}") for row in documents)
            yield b"".join(rows)
            self._at = Place(epoch)
            progress = {"epoch": epoch, "watermark": watermark, "snapshot": True}
        assert self._at is not None
        yield self._form.progress(self._at.epoch, _encode(progress))

    async def _snapshot_pages(self) -> AsyncIterator[tuple[int, int | None, list[bytes]]]:
        if self._key is not None:
            epoch, watermark, row = await run_in_threadpool(
                self._results.group, self._follower, self._key, None
            )
            yield epoch, watermark, [] if row is None else [row]
            return
        asked = listing(self._follower.shape, [], None, None)
        cursor: str | None = None
        while True:
            page = await run_in_threadpool(
                self._results.page, self._follower, asked, PAGE_ROWS_MAX, None, cursor
            )
            yield page.epoch, page.watermark, page.documents
            cursor = page.cursor
            if cursor is None:
                return

    async def _following(self, at: Place) -> AsyncIterator[bytes]:
        silent_since = time.monotonic()
        while True:
            if self._follower.closed:
                if self._follower.successor is None:
                    return
                self._follower = self._follower.successor
            share = self._follower.told.share()
            epochs = recent_epochs(self._follower, at)
            if not epochs and behind(self._follower, at):
                epochs = await run_in_threadpool(next_epochs, self._follower, at)
            for epoch in epochs:
                yield await self._events(epoch, at)
                at = Place(epoch.epoch)
                silent_since = time.monotonic()
            if epochs:
                continue
            left = HEARTBEAT_SECONDS - (time.monotonic() - silent_since)
            if left <= 0:
                yield self._form.heartbeat
                silent_since = time.monotonic()
                continue
            await beaten(share, left)

    async def _events(self, epoch: EpochChanges, at: Place) -> bytes:
        after = at.seq if at.epoch == epoch.epoch else -1
        told = b""
        if epoch.columns is not None and after < 0:
            told = self._form.columns(_encode({"epoch": epoch.epoch, "columns": epoch.columns}))
        if epoch.count(self._key) > _LOOP_ROWS_MAX:
            rows = await run_in_threadpool(self._form.rows, epoch, after, self._key)
        else:
            rows = self._form.rows(epoch, after, self._key)
        return told + rows + self._form.progress(epoch.epoch, epoch.progress)


async def _gone(receive: Receive) -> None:
    """Until the client has closed its side."""
    while (await receive())["type"] != "http.disconnect":
        pass
