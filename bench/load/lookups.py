"""Clients of the service in separate processes, so that they do not disturb each other.

lookups    at a fixed rate over kept connections; the time of a late one counts from its due time
followers  server-sent events of one group or of all; each records the ids that it receives

python -m bench.load.lookups ADDRESS JOB REQUEST_FILE ──► a line `ready`, then a document at the end

Lookups and followers have a light process (uvloop) each. Followers parse their events at the end,
because the time for that does not belong to the service's answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import uvloop

CONNECTIONS = 16
LOOKUPS_PER_SECOND = 500
_CHANGE = re.compile(rb"event: change\nid: (\d+:\d+):\w+\n")
_PROGRESS = re.compile(rb"event: progress\nid: (\d+):")
_COMMITTED = re.compile(rb'"committed_at":"([^"]+)"')
_EPOCH = re.compile(rb"x-epoch: (\d+)", re.IGNORECASE)
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


@dataclass(slots=True)
class Followed:
    """The events of one follower: the number of its changes, their digest, and its epochs."""

    key: str | None
    changes: int = 0
    digest: Any = field(default_factory=hashlib.sha256)
    first_epoch: int | None = None
    last_epoch: int | None = None
    broken: str | None = None
    waits_ms: list[float] = field(default_factory=list)  # from the commit to its progress event
    chunks: list[tuple[float, bytes]] = field(default_factory=list)  # arrival time, bytes

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
        self._seen_at: dict[int, float] = {}  # epoch -> time of the first lookup with it, in ms
        self._stopped = asyncio.Event()

    async def run(self) -> dict[str, Any]:
        followers = [asyncio.create_task(self._follow(each)) for each in self._following]
        await asyncio.sleep(2)
        due: asyncio.Queue[tuple[float, str]] = asyncio.Queue()
        clients = [
            asyncio.create_task(self._look_up(due)) for _ in range(CONNECTIONS) if self._keys
        ]
        print("ready", flush=True)
        pacing = [self._pace(due)] if self._keys else []
        await asyncio.gather(*pacing, asyncio.to_thread(self._wait_for_end))
        await asyncio.sleep(3)  # for events of the last commit
        for task in (*followers, *clients):
            task.cancel()
        await asyncio.gather(*followers, *clients, return_exceptions=True)
        for each in self._following:
            _parse_events(each)
        return {
            "lookups_ms": self._lookups_ms,
            "failed": self._failed,
            "seen_at": self._seen_at,
            "followers": [each.document() for each in self._following],
        }

    def _wait_for_end(self) -> None:
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

    async def _look_up(self, due: asyncio.Queue[tuple[float, str]]) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        while True:
            moment, key = await due.get()
            path = f"/v1/jobs/{self._job}/results/{quote(key, safe='')}"
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            assert length is not None
            await reader.readexactly(int(length[1]))
            self._lookups_ms.append((time.perf_counter() - moment) * 1_000)
            # The group may have been deleted, so 404 is a correct answer.
            self._failed += head[9:12] not in (b"200", b"404")
            epoch = _EPOCH.search(head)
            if epoch is not None:
                self._seen_at.setdefault(int(epoch[1]), time.time() * 1_000)

    async def _follow(self, followed: Followed) -> None:
        query = "" if followed.key is None else f"?key={quote(followed.key, safe='')}"
        try:
            reader, writer = await asyncio.open_connection(self._host, self._port, limit=2**22)
            path = f"/v1/jobs/{self._job}/changes{query}"
            accept = "Accept: text/event-stream"
            head = f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\n{accept}\r\n\r\n"
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


def _parse_events(followed: Followed) -> None:
    """Parse all events after the measurement, because large epochs take processor time."""
    rest = b""
    for now, chunk in followed.chunks:
        rest += chunk
        end = rest.rfind(b"\n\n") + 2
        if end > 1:
            _parse_complete(followed, rest[:end], now)
            rest = rest[end:]


def _parse_complete(followed: Followed, events: bytes, now: float) -> None:
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
        at = datetime.fromisoformat(committed[-1].decode())
        followed.waits_ms.append(now - round(at.timestamp() * 1_000))


def main(arguments: list[str]) -> None:
    address, job, file = arguments
    request = json.loads(Path(file).read_text())
    load = Load(address, job, request["keys"], request["followed"])
    print(json.dumps(uvloop.run(load.run())), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
