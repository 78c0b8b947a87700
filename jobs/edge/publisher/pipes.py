"""Read epochs from and write answers to the driver, one JSON line each.

driver ─► stdin ─► Inbox        Outbox ─► stdout ─► driver        log ─► stderr
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from typing import IO, Self

import msgspec

from jobs.core.publish.protocol import Answer, Configuration, EpochToPublish
from schemas import limits

_WATCH_SECONDS = 0.5


class ParentGone(Exception):
    """The driver has ended; the publisher commits nothing more."""


class Inbox:
    """Receives epochs from the driver.

    A thread reads the pipe. So the driver never waits for a full pipe, and the publisher notices
    the driver's end while its main thread is inside a library. The methods are for the main thread.
    """

    def __init__(self, lines: IO[bytes]) -> None:
        self._lines = lines
        self._changed = threading.Condition()
        self._waiting: deque[tuple[EpochToPublish, float]] = deque()
        self._stopped = False
        self._parent_gone = False
        self.configuration = msgspec.json.decode(lines.readline(), type=Configuration)

    def start(self) -> Self:
        """Start the threads that read lines and watch the parent."""
        threading.Thread(target=self._read, name="inbox", daemon=True).start()
        threading.Thread(target=self._watch, args=[os.getppid()], daemon=True).start()
        return self

    def take(self, *, wait: bool) -> list[tuple[EpochToPublish, float]]:
        """Return the waiting epochs with their arrival times; with `wait`, at least one if any."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._waiting or self._stopped or self._parent_gone or not wait
            )
            self.require_parent()
            taken = list(self._waiting)
            self._waiting.clear()
            return taken

    @property
    def exhausted(self) -> bool:
        """Whether the driver has stopped sending and no epoch waits."""
        with self._changed:
            return self._stopped and not self._waiting

    def require_parent(self) -> None:
        """Raise ParentGone if the driver has ended."""
        if self._parent_gone:
            raise ParentGone

    def pause(self, seconds: float) -> None:
        """Wait; raise ParentGone if the driver ends meanwhile."""
        with self._changed:
            self._changed.wait_for(lambda: self._parent_gone, seconds)
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
        """Poll the parent, too, because another process may keep the pipe open."""
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        self._leave()

    def _leave(self) -> None:
        """Let the main thread end by itself, and end the process if that takes too long."""
        with self._changed:
            self._parent_gone = True
            self._changed.notify_all()
        time.sleep(limits.PUBLISHER_ORPHAN_SECONDS_MAX)
        os._exit(1)


class Outbox:
    """Sends answers to the driver; nothing else writes to standard output."""

    def __init__(self, lines: IO[bytes]) -> None:
        self._lines = lines

    def write_answer(self, answer: Answer) -> None:
        """Write an answer; raise ParentGone if the driver has ended."""
        try:
            self._lines.write(msgspec.json.encode(answer) + b"\n")
            self._lines.flush()
        except BrokenPipeError:
            raise ParentGone from None


def log(text: str) -> None:
    """Write a line to the job's log."""
    print(f"publisher: {text}", file=sys.stderr, flush=True)
