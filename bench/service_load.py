"""Clients of the service, in processes of their own, so that none is another's neighbour.

lookups    paced by the clock over kept connections; late ones count from when they were due
followers  server-sent events of one group, or of all; each notes the ids it was sent

python -m bench.service_load ADDRESS JOB ASKED_FILE ──► a line `ready`, at end of input a document

Who looks up and who follows are two processes, and light ones (uvloop), and what was followed is
looked through at the end: the time that takes is not the service's answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import uvloop

CONNECTIONS = 16
LOOKUPS_PER_SECOND = 500
_CHANGE = re.compile(rb"event: change\nid: (\d+:\d+)\n")
_PROGRESS = re.compile(rb"event: progress\nid: (\d+):")
_COMMITTED = re.compile(rb'"committed_at":(\d+)')
_EPOCH = re.compile(rb"x-epoch: (\d+)", re.IGNORECASE)
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


@dataclass(slots=True)
class Followed:
    """What one follower was sent: how many changes, in order, as a digest; between two epochs."""

    key: str | None
    changes: int = 0
    digest: Any = field(default_factory=hashlib.sha256)
    first_epoch: int | None = None
    last_epoch: int | None = None
    broken: str | None = None
    waits_ms: list[float] = field(default_factory=list)  # from the commit to its progress event
    chunks: list[tuple[float, bytes]] = field(default_factory=list)  # as they came, and when

    def document(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "changes": self.changes,
            "digest": self.digest.hexdigest(),
            "first_epoch": self.first_epoch,
            "last_epoch": self.last_epoch,
            "broken": self.broken,
            "waits_ms": self.waits_ms,
        }


class Load:
    def __init__(self, address: str, job: str, keys: list[str], followed: list[str | None]) -> None:
        parts = urlsplit(address)
        assert parts.hostname is not None and parts.port is not None
        self._host, self._port = parts.hostname, parts.port
        self._job = job
        self._keys = keys
        self._following = [Followed(key) for key in followed]
        self._lookups_ms: list[float] = []
        self._failed = 0
        self._seen_at: dict[int, float] = {}  # epoch -> when a lookup first had it, in ms
        self._stopped = asyncio.Event()

    async def run(self) -> dict[str, Any]:
        followers = [asyncio.create_task(self._follow(each)) for each in self._following]
        await asyncio.sleep(2)
        due: asyncio.Queue[tuple[float, str]] = asyncio.Queue()
        askers = [asyncio.create_task(self._ask(due)) for _ in range(CONNECTIONS) if self._keys]
        print("ready", flush=True)
        pacing = [self._pace(due)] if self._keys else []
        await asyncio.gather(*pacing, asyncio.to_thread(self._until_told))
        await asyncio.sleep(3)  # what was committed last is on its way
        for task in (*followers, *askers):
            task.cancel()
        await asyncio.gather(*followers, *askers, return_exceptions=True)
        for each in self._following:
            _note_all(each)
        return {
            "lookups_ms": self._lookups_ms,
            "failed": self._failed,
            "seen_at": self._seen_at,
            "followers": [each.document() for each in self._following],
        }

    def _until_told(self) -> None:
        sys.stdin.read()
        self._stopped.set()

    async def _pace(self, due: asyncio.Queue[tuple[float, str]]) -> None:
        began = time.perf_counter()
        count = 0
        while not self._stopped.is_set():
            wanted = int((time.perf_counter() - began) * LOOKUPS_PER_SECOND)
            for number in range(count, wanted):
                moment = began + number / LOOKUPS_PER_SECOND
                due.put_nowait((moment, self._keys[number * 7_919 % len(self._keys)]))
            count = max(count, wanted)
            await asyncio.sleep(0.002)

    async def _ask(self, due: asyncio.Queue[tuple[float, str]]) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        while True:
            moment, key = await due.get()
            place = f"/v1/jobs/{self._job}/results/{quote(key, safe='')}"
            writer.write(f"GET {place} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            assert length is not None
            await reader.readexactly(int(length[1]))
            self._lookups_ms.append((time.perf_counter() - moment) * 1_000)
            # A group may have gone since: that is an answer too.
            self._failed += head[9:12] not in (b"200", b"404")
            epoch = _EPOCH.search(head)
            if epoch is not None:
                self._seen_at.setdefault(int(epoch[1]), time.time() * 1_000)

    async def _follow(self, followed: Followed) -> None:
        query = "" if followed.key is None else f"?key={quote(followed.key, safe='')}"
        try:
            reader, writer = await asyncio.open_connection(self._host, self._port, limit=2**22)
            place = f"/v1/jobs/{self._job}/changes{query}"
            accept = "Accept: text/event-stream"
            head = f"GET {place} HTTP/1.1\r\nHost: {self._host}\r\n{accept}\r\n\r\n"
            writer.write(head.encode())
            answer = await reader.readuntil(b"\r\n\r\n")
            if not answer.startswith(b"HTTP/1.1 200"):
                followed.broken = answer.split(b"\r\n")[0].decode()
                return
            while True:
                size = int(await reader.readuntil(b"\r\n"), 16)
                if size == 0:
                    followed.broken = "the stream ended"
                    return
                chunk = await reader.readexactly(size + 2)
                followed.chunks.append((time.time() * 1_000, chunk[:-2]))
        except (OSError, EOFError, ValueError) as error:
            followed.broken = repr(error)


def _note_all(followed: Followed) -> None:
    """Only now that nobody is measured: to look through large epochs takes processor time."""
    rest = b""
    for now, chunk in followed.chunks:
        rest += chunk
        end = rest.rfind(b"\n\n") + 2
        if end > 1:
            _note(followed, rest[:end], now)
            rest = rest[end:]


def _note(followed: Followed, events: bytes, now: float) -> None:
    ids = _CHANGE.findall(events)
    followed.changes += len(ids)
    followed.digest.update(b"".join(each + b";" for each in ids))
    for epoch in _PROGRESS.findall(events):
        number = int(epoch)
        if followed.last_epoch is not None and number != followed.last_epoch + 1:
            followed.broken = f"epoch {number} after {followed.last_epoch}"
        if followed.first_epoch is None:
            followed.first_epoch = number
        followed.last_epoch = number
    committed = _COMMITTED.findall(events)
    if committed:
        followed.waits_ms.append(now - int(committed[-1]))


def main(arguments: list[str]) -> None:
    address, job, file = arguments
    asked = json.loads(Path(file).read_text())
    load = Load(address, job, asked["keys"], asked["followed"])
    print(json.dumps(uvloop.run(load.run())), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
