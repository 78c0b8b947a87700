"""Start and drive the publisher process from the driver (see jobs.edge.publisher.process).

    driver thread ── send ──► queue ──► writer thread ──► stdin  of the process
    driver thread ◄─ state ─────────── reader thread ◄── stdout

The driver never waits for Kafka or for a pipe. Only with PUBLISH_BACKLOG_EPOCHS_MAX epochs
committed and not yet published, `send` waits until one is published.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from queue import SimpleQueue
from typing import IO

import msgspec

from jobs.core.publish.protocol import (
    STOP_LINE,
    Answer,
    Configuration,
    EpochToPublish,
    Fatal,
    Ready,
)
from schemas import limits
from schemas.failures.catalogue import CodedError

COMMAND = (sys.executable, "-m", "jobs.edge.publisher.process")
_CHECKOUT = Path(__file__).resolve().parents[3]


class PublisherFailed(CodedError, RuntimeError):
    """The publisher ended or did not answer in time; `fatal` has the reason."""

    def __init__(self, fatal: Fatal) -> None:
        hint = f" ({fatal.hint})" if fatal.hint else ""
        super().__init__(f"{fatal.code}: {fatal.reason}{hint}")
        self.fatal = fatal
        self.code = fatal.code


class Publisher:
    """One publisher process. All methods are for the driver's thread.

    After a failure the driver needs a new handle. It sends the epochs after the progress that
    `start` returns again, from the table.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._changed = threading.Condition()
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        self._outstanding: deque[int] = deque()
        self._ready: Ready | None = None
        self._published: int | None = None
        self._last: Answer | None = None
        self._latencies: deque[tuple[int, int]] = deque(maxlen=limits.PUBLISH_BACKLOG_EPOCHS_MAX)
        self._failure: Fatal | None = None
        self._stopping = False
        self._ended = False
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, seconds_max: float = limits.PUBLISHER_START_SECONDS_MAX) -> Ready:
        """Start the process and wait until it has fenced its predecessor and read the progress."""
        self.launch()
        return self.wait_until_ready(seconds_max)

    def launch(self) -> None:
        """Start the process."""
        process = self._process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_CHECKOUT,
            # A copy, because Spark starts at the same time and sets variables: starting a process
            # with an environment that changes meanwhile fails with EFAULT. One by one, because
            # dict() fails when a name goes away between its listing and its reading.
            env={name: value for name in os.environ if (value := os.environ.get(name)) is not None},
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self._outgoing.put(msgspec.json.encode(self._configuration) + b"\n")
        for work, stream in ((self._write, process.stdin), (self._read, process.stdout)):
            threading.Thread(target=work, args=[stream], name="publisher", daemon=True).start()

    def wait_until_ready(self, seconds_max: float = limits.PUBLISHER_START_SECONDS_MAX) -> Ready:
        """Wait until the process has fenced its predecessor and read the progress."""
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._ended, seconds_max)
            if self._ready is not None:
                return self._ready
        if not self._ended:
            self.kill()
            self._failure = Fatal(
                "publisher-unreachable",
                f"the publisher is not ready after {seconds_max} s",
                "see the job's log",
            )
        raise PublisherFailed(self._reason())

    def send(self, epoch: EpochToPublish) -> None:
        """Send the next committed epoch; wait only while the backlog is full."""
        line = msgspec.json.encode(epoch) + b"\n"
        with self._changed:
            self._changed.wait_for(
                lambda: self._ended or len(self._outstanding) < limits.PUBLISH_BACKLOG_EPOCHS_MAX
            )
            if self._ended:
                raise PublisherFailed(self._reason())
            self._outstanding.append(epoch.epoch)
            self._outgoing.put(line)

    def flush(self, seconds_max: float | None = None, up_to: int | None = None) -> bool:
        """Wait until the sent epochs are published; return False if that takes too long.

        Epochs after `up_to` do not count. With 0, return at once. Raises PublisherFailed if the
        publisher has failed, even if it had nothing left to publish.
        """

        def is_published() -> bool:
            waiting = self._outstanding
            return not waiting or (up_to is not None and waiting[0] > up_to)

        with self._changed:
            self._changed.wait_for(lambda: self._ended or is_published(), seconds_max)
            if self._failure is not None or (self._ended and not is_published()):
                raise PublisherFailed(self._reason())
            return is_published()

    @property
    def published(self) -> int | None:
        """The newest epoch that this process or a predecessor has completely published."""
        return self._published

    @property
    def last_answer(self) -> Answer | None:
        """The newest answer about a published epoch, for metrics."""
        return self._last

    def take_latencies(self) -> dict[int, int]:
        """Return the latencies in milliseconds of epochs published since the last call.

        If nobody calls for long, only the newest are kept.
        """
        with self._changed:
            latencies = dict(self._latencies)
            self._latencies.clear()
        return latencies

    @property
    def failure(self) -> Fatal | None:
        return self._failure

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def stop(self, seconds_max: float = limits.PUBLISHER_STOP_SECONDS_MAX) -> None:
        """Stop the process after it has published all sent epochs; kill it after `seconds_max`."""
        if self._process is None:
            return
        deadline = time.monotonic() + seconds_max
        with self._changed:
            self._stopping = True
        self._outgoing.put(STOP_LINE)
        self._outgoing.put(None)
        with self._changed:
            in_time = self._changed.wait_for(
                lambda: self._ended, max(0.0, deadline - time.monotonic())
            )
        if not in_time:
            self.kill()
        if self._failure is not None:
            raise PublisherFailed(self._failure)

    def kill(self) -> None:
        """Kill the process; the next publisher aborts its open transaction."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _write(self, stdin: IO[bytes]) -> None:
        try:
            with stdin:
                while (line := self._outgoing.get()) is not None:
                    stdin.write(line)
                    stdin.flush()
        except BrokenPipeError:
            pass  # the reader thread reports why the process ended

    def _read(self, stdout: IO[bytes]) -> None:
        decoder = msgspec.json.Decoder(Answer)
        with stdout:
            for line in stdout:
                with self._changed:
                    self._receive(decoder.decode(line))
                    self._changed.notify_all()
        assert self._process is not None
        status = self._process.wait()
        with self._changed:
            if self._failure is None and not (self._stopping and status == 0):
                reason = f"the publisher process ended with status {status}"
                self._failure = Fatal("publisher-died", reason, "see the end of the job's log")
            self._ended = True
            self._changed.notify_all()
        self._outgoing.put(None)

    def _receive(self, answer: Answer) -> None:
        if answer.fatal is not None:
            self._failure = answer.fatal
        elif answer.ready is not None:
            self._ready = answer.ready
            topics = answer.ready.topics
            if all(each.epoch is not None for each in topics):
                self._published = min(each.published for each in topics)
        elif answer.published is not None:
            self._published = answer.published
            self._last = answer
            if answer.latency_ms is not None:
                self._latencies.append((answer.published, answer.latency_ms))
            self._outstanding.popleft()

    def _reason(self) -> Fatal:
        return self._failure or Fatal("publisher-died", "the publisher process has ended")
