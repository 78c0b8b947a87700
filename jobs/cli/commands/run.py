"""retally run: runs one job in the foreground, with a progress line on a terminal."""

from __future__ import annotations

import argparse
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from jobs.cli.output import open_console, print_note
from jobs.cli.parser import require_local_master
from jobs.cli.spec_reading import load_job
from jobs.edge.machine.data_directory import require_writable
from schemas.spec.connections import load_connections
from schemas.spec.duration import duration_text
from schemas.spec.values import instant_text
from schemas.spec.watermark import TimeDefaults

if TYPE_CHECKING:
    from pathlib import Path

    from jobs.running.job import Job
    from jobs.running.progress import JobProgress
    from schemas.spec.job import JobSpec

REDRAW_SECONDS = 0.25
RATE_SECONDS = 10.0  # messages a second are those of the last so many seconds


def run(options: argparse.Namespace) -> None:
    require_local_master(options)
    spec, _ = load_job(options.spec)
    require_writable(options.data)
    connections = load_connections(options.connections, options.brokers)
    on_terminal = sys.stderr.isatty() and not options.verbose
    if on_terminal:  # a person should not wait as long as a supervised job does
        from jobs.edge.kafka.admin import require_listener

        for name in spec.topics_by_connection:
            require_listener(connections.lookup(name).bootstrap)
    from jobs.running.job import Job  # imports Spark

    job = Job(
        spec,
        options.data,
        connections,
        master=options.master,
        until_caught_up=options.until_caught_up or options.drain,
        drain=options.drain,
        time_defaults=TimeDefaults(options.idle_after, options.emit_every),
        tables=options.tables,
        jobs_per_driver=options.jobs_per_driver,
    )
    job.stop_on_signals()
    if not on_terminal:
        logging.getLogger("jobs").setLevel(logging.DEBUG if options.verbose else logging.INFO)
    with _show_progress(job) if on_terminal else nullcontext():
        job.run()
    newest = job.progress.newest
    if newest is not None:
        log = logging.getLogger("jobs.running.job")
        log.info(
            "job %s ended at epoch %d after %d messages", spec.name, newest.epoch, job.progress.read
        )
        for note in list_quarantine_notes(spec, job.progress, options.data):
            print_note(note)


def list_quarantine_notes(spec: JobSpec, progress: JobProgress, data: Path) -> list[str]:
    """Return what is in quarantine, and the commands that show it."""
    command = f"retally quarantine {spec.name} --data {data}"
    notes = []
    if count := progress.quarantined:
        view = next(iter(spec.view_specs))
        verb = "is" if count == 1 else "are"
        notes.append(f"{count:,} of them {verb} in quarantine: {_at_view(command, view)}")
    for view, count in progress.refused.items():
        named = f"view {view}" if view else "the query"
        notes.append(f"{named} refused {count:,} of them: {_at_view(command, view)}")
    return notes


def _at_view(command: str, view: str) -> str:
    return f"{command} --view {view}" if view else command


@contextmanager
def _show_progress(job: Job) -> Iterator[None]:
    """Show a line at the bottom of the terminal; a thread redraws it."""
    ended = threading.Event()
    terminal = open_console(errors=True)

    def redraw() -> None:
        with terminal.status(f"{job.spec.name}: starting") as status:
            rate = _RateMeter()
            while not ended.wait(REDRAW_SECONDS):
                status.update(describe_progress(job.spec.name, job.progress, rate))

    drawing = threading.Thread(target=redraw, daemon=True)
    drawing.start()
    try:
        yield
    finally:
        ended.set()
        drawing.join()
        terminal.print(describe_progress(job.spec.name, job.progress, None))


class _RateMeter:
    """Measures messages a second over the last RATE_SECONDS."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def measure(self, read: int) -> float:
        now = time.monotonic()
        self._seen.append((now, read))
        while now - self._seen[0][0] > RATE_SECONDS:
            self._seen.popleft()
        began, before = self._seen[0]
        return (read - before) / (now - began) if now > began else 0.0


def describe_progress(name: str, progress: JobProgress, rate: _RateMeter | None) -> str:
    """Return the progress of a job in one line."""
    newest = progress.newest
    if newest is None:
        return f"{name}: starting"
    parts = [f"epoch {newest.epoch}", f"{newest.groups:,} groups"]
    if progress.snapshot is not None:
        parts.append(progress.snapshot)
    parts.append(f"{progress.read:,} messages")
    if count := progress.quarantined + progress.refused.total():
        parts.append(f"{count:,} in quarantine")
    if rate is not None:
        parts.append(f"{rate.measure(progress.read):,.0f}/s")
    if progress.lag is not None:
        parts.append(f"lag {progress.lag:,}")
    if progress.published is not None:
        parts.append(f"published {progress.published}")
    if progress.mirrors is not None and (mirror := progress.mirrors.oldest) is not None:
        seconds = mirror.age_ms(newest.epoch, int(time.time() * 1_000)) // 1_000
        age = f"{duration_text(seconds * 1_000)} old" if seconds else "current"
        parts.append(f"mirror at epoch {mirror.epoch}, {age}")
    if progress.messages_one_by_one:
        parts.append(f"{progress.messages_one_by_one:,} decoded one by one")
    held, window_at = newest.time.held_by, newest.time.next_window_at
    if held:
        waits = "watermark" if window_at is None else f"window up to {instant_text(window_at)}"
        parts.append(f"{waits} waits for {held[0]}" + (" and others" if held[1:] else ""))
    return f"{name}: " + ", ".join(parts)
