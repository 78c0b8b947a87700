"""The event stream: sends the changes of one job to one client.

    snapshot (optional) ─► progress ─► changes of an epoch ─► progress ─► ... ─► heartbeat
       rows of epoch N      id N:last:T   id E:S               id E:last:T     a comment

A stream stores its position and no data: it reads the next epochs when the socket accepts more. A
stalled socket is closed; its client resumes with the id of the last row that it received.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable

import msgspec
from fastapi.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from schemas import limits
from service.answers.changes import (
    ChangePosition,
    find_recent_epochs,
    has_next,
    read_epochs,
    require_table,
)
from service.answers.listing import parse_listing
from service.answers.results import Results, TableReadsBusy
from service.live.recent_changes import EpochChanges
from service.live.staggered_event import wait_for_share
from service.live.table import LiveTable
from service.problems import Problem

log = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode
_CHANGE, _COLUMNS, _PROGRESS, _GONE = b"change", b"columns", b"progress", b"gone"


class Events:
    """Server-sent events, for browsers."""

    media = b"text/event-stream; charset=utf-8"
    hello = b"retry: 1000\n\n"
    heartbeat = b": still here\n\n"

    @staticmethod
    def render_rows(epoch: EpochChanges, after: int, key: bytes | None) -> bytes:
        return epoch.render_events(after, key)

    @staticmethod
    def render(name: bytes, document: bytes, at: ChangePosition | None = None) -> bytes:
        """Return one event; with `at`, a client that reconnects resumes after it."""
        position = b"" if at is None else b"id: %b\n" % str(at).encode()
        return b"event: %b\n%bdata: %b\n\n" % (name, position, document)


class Lines:
    """JSON lines, for programs: changes as plain documents, other events in an object."""

    media = b"application/x-ndjson"
    hello = b""
    heartbeat = b"\n"

    @staticmethod
    def render_rows(epoch: EpochChanges, after: int, key: bytes | None) -> bytes:
        return b"".join(change.document + b"\n" for change in epoch.iterate_after(after, key))

    @staticmethod
    def render(name: bytes, document: bytes, at: ChangePosition | None = None) -> bytes:
        return document + b"\n" if name == _CHANGE else b'{"%b":%b}\n' % (name, document)


class EventStream:
    """An endless response, which is an ASGI application."""

    def __init__(
        self,
        live_table: LiveTable,
        at: ChangePosition | None,
        key: bytes | None,
        results: Results,
        form: type[Events] | type[Lines],
        admitted: Callable[[], bool],
    ) -> None:
        self._form = form
        self._live_table = live_table
        self._at = at  # None: start with a snapshot
        self._key = key
        self._results = results
        self._admitted = admitted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", self._form.media),
            (b"cache-control", b"no-store, no-transform"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        leaving = asyncio.ensure_future(wait_for_disconnect(receive))
        sending = asyncio.ensure_future(self._send_all(send))
        try:
            await asyncio.wait({leaving, sending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            sending.cancel()
            await asyncio.gather(leaving, sending, return_exceptions=True)
        if sending.done() and not sending.cancelled() and sending.exception() is not None:
            # Without the end of the body, the client sees a broken stream and reconnects.
            log.info("closed a stream of job %s: %r", self._name, sending.exception())

    @property
    def _name(self) -> str:
        return self._live_table.paths.name

    async def _send_all(self, send: Send) -> None:
        async for piece in self._make_pieces():
            for start in range(0, len(piece), limits.STREAM_PIECE_BYTES):
                body = piece[start : start + limits.STREAM_PIECE_BYTES]
                message = {"type": "http.response.body", "body": body, "more_body": True}
                async with asyncio.timeout(limits.FOLLOWER_STALL_SECONDS_MAX):
                    await send(message)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _make_pieces(self) -> AsyncIterator[bytes]:
        yield self._form.hello
        try:
            if self._at is None:
                async for piece in self._make_snapshot():
                    yield piece
            assert self._at is not None
            async for piece in self._follow(self._at):
                yield piece
        except Problem as problem:  # retention has overtaken a slow client
            yield self._form.render(_GONE, _encode(problem.document()))

    async def _make_snapshot(self) -> AsyncIterator[bytes]:
        """Yield the rows of one epoch as inserts without ids: a partial snapshot cannot resume."""
        progress: dict[str, object] = {}
        async for epoch, watermark, documents, table in self._read_snapshot_pages():
            head = b'{"op":"+I","epoch":%d,"snapshot":true,"row":' % epoch
            rows = (self._form.render(_CHANGE, head + row + b"}") for row in documents)
            yield b"".join(rows)
            self._at = ChangePosition(epoch, table=table)
            progress = {"epoch": epoch, "watermark": watermark, "snapshot": True}
        assert self._at is not None
        yield self._form.render(_PROGRESS, _encode(progress), self._at)

    async def _read_snapshot_pages(self) -> AsyncIterator[tuple[int, int | None, list[bytes], str]]:
        if self._key is not None:
            epoch, watermark, row, table = await run_in_threadpool(
                self._results.read_group, self._live_table, self._key, None
            )
            yield epoch, watermark, [] if row is None else [row], table
            return
        listing = parse_listing(self._live_table, [], None, None)
        cursor: str | None = None
        while True:
            page = await run_in_threadpool(
                self._results.read_page,
                self._live_table,
                listing,
                limits.PAGE_ROWS_MAX,
                None,
                cursor,
            )
            yield page.epoch, page.watermark, page.documents, page.table_tag
            cursor = page.cursor
            if cursor is None:
                return

    async def _follow(self, at: ChangePosition) -> AsyncIterator[bytes]:
        idle_since = checked = time.monotonic()
        while True:
            if time.monotonic() - checked >= limits.HEARTBEAT_SECONDS:
                checked = time.monotonic()
                if not self._admitted():  # its token was revoked or has expired
                    return
            if self._live_table.closed:
                if self._live_table.successor is None:
                    return
                self._live_table = self._live_table.successor
            require_table(self._live_table, at)
            share = self._live_table.new_changes.share()
            pause = limits.HEARTBEAT_SECONDS
            epochs = find_recent_epochs(self._live_table, at)
            if not epochs and has_next(self._live_table, at):
                try:
                    epochs = await run_in_threadpool(
                        read_epochs, self._live_table, at, self._results.reads
                    )
                except TableReadsBusy:  # a stream that has started waits for its turn
                    pause = limits.TABLE_READ_RETRY_SECONDS
            for epoch in epochs:
                yield await self._render_epoch(epoch, at)
                at = ChangePosition(epoch.epoch, table=epoch.table)
                idle_since = time.monotonic()
            if epochs:
                continue
            left = limits.HEARTBEAT_SECONDS - (time.monotonic() - idle_since)
            if left <= 0:
                yield self._form.heartbeat
                idle_since = time.monotonic()
                continue
            await wait_for_share(share, min(left, pause))

    async def _render_epoch(self, epoch: EpochChanges, at: ChangePosition) -> bytes:
        after = at.seq if at.epoch == epoch.epoch else -1
        head = b""
        if epoch.columns is not None and after < 0:
            columns = {"epoch": epoch.epoch, "columns": epoch.columns}
            head = self._form.render(_COLUMNS, _encode(columns))
        if epoch.count_rows(self._key) > limits.STREAM_LOOP_ROWS_MAX:
            rows = await run_in_threadpool(self._form.render_rows, epoch, after, self._key)
        else:
            rows = self._form.render_rows(epoch, after, self._key)
        end = ChangePosition(epoch.epoch, table=epoch.table)
        # With an id, so that a client that filters by an unchanged key advances too.
        return head + rows + self._form.render(_PROGRESS, epoch.progress, end)


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client closes the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
