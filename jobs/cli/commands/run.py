"""retally run: one job in the foreground, with a line that says how it is doing."""

from __future__ import annotations

import argparse
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jobs.cli.output import console
from jobs.cli.spec_reading import load_job
from schemas.spec.connections import load_connections

if TYPE_CHECKING:
    from jobs.running.job import Job, Progress

REDRAW_SECONDS = 0.25
RATE_SECONDS = 10.0  # the time over which rows a second are counted


def run(options: argparse.Namespace) -> None:
    spec, _ = load_job(options.spec)
    connections = load_connections(options.connections, options.brokers)
    from jobs.running.job import Job  # only now: it brings Spark

    job = Job(
        spec,
        options.data,
        connections,
        master=options.master,
        until_caught_up=options.until_caught_up,
        tables=options.tables,
    )
    job.stop_on_signals()
    on_terminal = sys.stderr.isatty() and not options.verbose
    if not on_terminal:
        logging.getLogger("jobs").setLevel(logging.DEBUG if options.verbose else logging.INFO)
    with _progress_line(job) if on_terminal else _nothing():
        job.run()
    newest = job.progress.newest
    if newest is not None:
        message = "job %s ended at epoch %d after %d messages"
        logging.getLogger("jobs.running.job").info(
            message, spec.name, newest.epoch, job.progress.read
        )


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _progress_line(job: Job) -> Iterator[None]:
    """A line at the bottom of the terminal, redrawn by a thread of its own."""
    ended = threading.Event()
    terminal = console(errors=True)

    def redraw() -> None:
        with terminal.status(f"{job.spec.name}: starting") as status:
            rate = _Rate()
            while not ended.wait(REDRAW_SECONDS):
                status.update(progress_text(job.spec.name, job.progress, rate))

    drawing = threading.Thread(target=redraw, daemon=True)
    drawing.start()
    try:
        yield
    finally:
        ended.set()
        drawing.join()
        terminal.print(progress_text(job.spec.name, job.progress, None))


class _Rate:
    """Messages a second over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def __call__(self, read: int) -> float:
        now = time.monotonic()
        self._seen.append((now, read))
        while now - self._seen[0][0] > RATE_SECONDS:
            self._seen.popleft()
        began, before = self._seen[0]
        return (read - before) / (now - began) if now > began else 0.0


def progress_text(name: str, progress: Progress, rate: _Rate | None) -> str:
    """How a job is doing, in one line."""
    newest = progress.newest
    if newest is None:
        return f"{name}: starting"
    parts = [f"epoch {newest.epoch}", f"{newest.counters.get('groups', 0):,} groups"]
    parts.append(f"{progress.read:,} messages")
    if rate is not None:
        parts.append(f"{rate(progress.read):,.0f}/s")
    if progress.lag is not None:
        parts.append(f"lag {progress.lag:,}")
    if progress.published is not None:
        parts.append(f"published {progress.published}")
    held = newest.watermarks.get("held_by")
    if held:
        parts.append(f"watermark held by {held[0]}" + (" and others" if held[1:] else ""))
    return f"{name}: " + ", ".join(parts)
