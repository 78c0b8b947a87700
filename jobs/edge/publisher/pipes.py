"""The publisher's pipes: epochs come in by one, answers go out by the other, a line each.

driver ─► stdin ─► Inbox        Outbox ─► stdout ─► driver        log ─► stderr
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from typing import IO

import msgspec

from jobs.core.publish.protocol import Answer, Configuration, EpochToPublish
from schemas import limits

_WATCH_SECONDS = 0.5


class ParentGone(Exception):
    """The driver is no more; what is not committed stays uncommitted."""


class Inbox:
    """Epochs as they come in. A thread reads, so that the driver never waits for a full pipe, and
    so that its end is noticed while the main thread is inside a library."""

    def __init__(self, lines: IO[bytes]) -> None:
        self._lines = lines
        self._changed = threading.Condition()
        self._waiting: deque[tuple[EpochToPublish, float]] = deque()
        self._stopped = False
        self._gone = False
        self.configuration = msgspec.json.decode(lines.readline(), type=Configuration)
        threading.Thread(target=self._read, name="inbox", daemon=True).start()
        threading.Thread(target=self._watch, args=[os.getppid()], daemon=True).start()

    def take(self, *, wait: bool) -> list[tuple[EpochToPublish, float]]:
        """All that waits, with the time it came; with `wait` at least one, unless all is done."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stopped or self._gone or not wait)
            self.require_parent()
            taken = list(self._waiting)
            self._waiting.clear()
            return taken

    @property
    def exhausted(self) -> bool:
        with self._changed:
            return self._stopped and not self._waiting

    def require_parent(self) -> None:
        if self._gone:
            raise ParentGone

    def pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._gone, seconds)
        self.require_parent()

    def _read(self) -> None:
        decoder = msgspec.json.Decoder(EpochToPublish)
        for line in self._lines:
            with self._changed:
                if b'"stop"' in line and "stop" in msgspec.json.decode(line):
                    self._stopped = True
                else:
                    self._waiting.append((decoder.decode(line), time.monotonic()))
                self._changed.notify_all()
        if not self._stopped:
            self._leave()

    def _watch(self, parent: int) -> None:
        """A second way to notice: someone else may hold the other end of the pipe open."""
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        self._leave()

    def _leave(self) -> None:
        with self._changed:
            self._gone = True
            self._changed.notify_all()
        time.sleep(limits.PUBLISHER_ORPHAN_SECONDS_MAX)
        os._exit(1)


class Outbox:
    """Answers to the driver; nothing else is ever written to standard output."""

    def __init__(self, lines: IO[bytes]) -> None:
        self._lines = lines

    def say(self, answer: Answer) -> None:
        try:
            self._lines.write(msgspec.json.encode(answer) + b"\n")
            self._lines.flush()
        except BrokenPipeError:
            raise ParentGone from None


def log(text: str) -> None:
    print(f"publisher: {text}", file=sys.stderr, flush=True)
