"""Following: the stream of changes as events, and where it continues after a cut.

bytes ──EventParser──► (kind, id, data) ──► Change | Columns | Progress
                            └── id: the position after which the next request continues
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from retally.documents import Change
from retally.errors import Gap, Refused, RetallyError, Unreachable
from retally.http import Connection, Request, make_refused

PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.1, 10.0
_Event = tuple[str, str | None, str]


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a job and their types, after its query changed in this epoch."""

    epoch: int
    columns: dict[str, str]


@dataclass(frozen=True, slots=True)
class Progress:
    """An epoch is complete; a stream of changes has one after each epoch.

    `position` is the `since` of a stream that continues after this epoch.
    """

    epoch: int
    watermark: int | None
    changes: int
    position: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Restarted:
    """What the stream has yielded before is void: the rows of a snapshot follow."""

    reason: str


Event = Change | Columns | Progress | Restarted


class EventParser:
    """Server-sent events from the bytes of a stream, in pieces of any length.

    Only line feeds separate lines: Python's `splitlines`, and httpx' lines, also end at U+2028 and
    others, which the data may have.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[bytes, bytes] = {}

    def feed(self, piece: bytes) -> Iterator[_Event]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            name, _, value = line.removesuffix(b"\r").partition(b": ")
            if line.startswith(b":"):  # a comment, while nothing happens
                continue
            if name:
                self._fields[name] = value
                continue
            found, self._fields = self._fields, {}
            if b"data" in found:
                kind, identity = found.get(b"event", b"message"), found.get(b"id")
                position = None if identity is None else identity.decode()
                yield kind.decode(), position, found[b"data"].decode()


@dataclass(slots=True)
class Follower:
    """A stream of changes that continues after its last event, however often it is cut."""

    connection: Connection
    path: str
    position: str | None  # None starts with a snapshot
    key: str | None
    patience: float
    resnapshot: bool  # after a gap
    _unfinished: bool = False  # rows of a snapshot were yielded, and it has not ended

    async def follow(self) -> AsyncGenerator[Event, None]:
        pause = PAUSE_SECONDS_MIN
        lost_at: float | None = None
        while True:
            wait: float | None = None
            try:
                async with aclosing(self._read()) as events:
                    async for event in events:
                        pause, lost_at = PAUSE_SECONDS_MIN, None
                        yield event
            except Gap as gap:
                if not self.resnapshot:
                    raise
                self.position, self._unfinished = None, False
                yield Restarted(str(gap))
            except Refused as error:
                if not error.retryable:
                    raise
                lost_at, wait = self._check_patience(lost_at, error), error.retry_after
            except Unreachable as error:
                lost_at = self._check_patience(lost_at, error)
            await self.connection.sleep(pause if wait is None else wait)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def _check_patience(self, lost_at: float | None, error: RetallyError) -> float:
        """Return since when the stream is cut; raise the error if that is too long ago."""
        lost_at = lost_at or monotonic()
        if monotonic() - lost_at > self.patience:
            raise error
        return lost_at

    async def _read(self) -> AsyncGenerator[Event, None]:
        """Read one connection to its end."""
        if self._unfinished:
            self._unfinished = False
            yield Restarted("the snapshot was cut off")
        parameters = {
            "snapshot": "true" if self.position is None else None,
            "since": self.position,
            "key": self.key,
        }
        accept = {"Accept": "text/event-stream"}
        request = Request("GET", self.path, parameters, headers=accept)
        parser = EventParser()
        async with aclosing(self.connection.stream(request)) as pieces:
            async for piece in pieces:
                for kind, position, data in parser.feed(piece):
                    event = self._make(kind, position, json.loads(data))
                    # Before the event is passed on: the next request continues after it.
                    if position is not None:
                        self.position = _name_table(position, self.position)
                    self._unfinished = self.position is None
                    if event is not None:
                        yield event

    def _make(self, kind: str, position: str | None, document: dict[str, Any]) -> Event | None:
        match kind:
            case "change":
                return Change(document if "seq" in document else {**document, "seq": -1})
            case "columns":
                return Columns(**document)
            case "progress":
                self.position = position or str(document["epoch"])
                changes = document.get("changes", 0)
                return Progress(document["epoch"], document["watermark"], changes, self.position)
            case "gone":
                raise make_refused(document)
        return None  # an event of a newer service


def _name_table(position: str, before: str | None) -> str:
    """Return a position with the table of the one before; the id of a change names none."""
    _, _, table = (before or "").partition(":")[2].partition(":")
    return f"{position}:{table}" if table and position.count(":") == 1 else position
