"""retally jobs, start, stop and so on: shows and controls the jobs of a running service."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import retally
from jobs.cli.errors import CommandFailed, UsageError
from jobs.cli.output import Columns, escape_controls, print_answer, print_note, show_waiting
from jobs.cli.service import name_places, service_client
from schemas.limits import LOG_LINES_MAX
from schemas.spec.file import load_spec
from schemas.table.changelog import topics_of_sink

_POLL_SECONDS = 1.0
_SAME_LINES = 100  # so many equal lines are the same lines

_COLUMNS: Columns = {
    "job": "name",
    "state": "actual",
    "desired": "desired",
    "epoch": "epoch",
    "groups": "groups",
    "lag": lambda job: None if job.lag is None else job.lag.records,
    "reason": lambda job: job.reason or "",
}
_LOG: Columns = {name: name for name in ("time", "level", "message")}
# The states of a job when the action is done; one with a pending spec rests in AWAITING_APPROVAL.
_GOALS = {
    "start": ("RUNNING",),
    "resume": ("RUNNING",),
    "restart": ("RUNNING",),
    "pause": ("PAUSED", "AWAITING_APPROVAL"),
    "stop": ("STOPPED", "AWAITING_APPROVAL"),
}


def run(options: argparse.Namespace) -> None:
    with service_client(options) as client:
        _run_action(client, options)


def _run_action(client: retally.Client, options: argparse.Namespace) -> None:
    action, name = options.action, options.name
    if action == "list":
        _print(client.jobs(label=options.label), options.output)
        return
    if options.label is not None:
        raise UsageError(f"--label is for list only: {action} takes the name of one job")
    if name is None:
        what, word = ("spec's file", "SPEC") if action == "put" else ("job's name", "NAME")
        raise UsageError(f"write the {what}: retally jobs {action} {word}")
    if action == "put":
        file = options.spec or Path(name)
        if not file.is_file():
            raise UsageError(f"there is no file {file}; write it so: retally jobs put SPEC")
        with name_places(file):
            job = client.put(file, name if options.spec else None, replace=options.replace)
        _print([job], options.output)
    elif action == "delete":
        if options.job_data is None:
            raise UsageError("choose --job-data keep, or --job-data drop for the job's table")
        job, dropped = client.job(name), options.job_data == "drop"
        client.delete(name, drop_data=dropped)
        for note in describe_deletion(job, dropped=dropped):
            print_note(note)
    elif action == "logs":
        _print_logs(client, options)
    else:
        job = client.job(name) if action == "show" else getattr(client, action)(name)
        if options.wait and action in _GOALS:
            with show_waiting(f"waiting until {name} is {_GOALS[action][0]}"):
                try:
                    job = client.until(name, *_GOALS[action], "FAILED", seconds=options.wait)
                except TimeoutError as error:
                    raise CommandFailed(f"{error}; see retally logs {name}") from None
        _print([job], options.output)
        if job.actual == "FAILED" and action in _GOALS:
            raise _describe_failure(job)


def await_epoch(
    client: retally.Client, name: str, epoch: int = 0, seconds: float = math.inf
) -> None:
    """Wait until a job runs and has results of an epoch; raise CommandFailed if it will not."""
    shown, end = None, time.monotonic() + seconds
    with show_waiting(f"{name}: starting") as update:
        while True:
            job = client.job(name)
            if job.actual == "RUNNING" and job.epoch is not None and job.epoch >= epoch:
                return
            reason = escape_controls(job.reason or "")
            if job.actual == "FAILED" and job.retry_at is None:
                raise _describe_failure(job)
            if job.desired != "RUNNING":
                raise CommandFailed(f"{name} does not start: its desired state is {job.desired}")
            if time.monotonic() >= end:
                raise CommandFailed(
                    f"{name} is {job.actual} after {seconds} s; see retally logs {name}"
                )
            if reason and reason != shown:
                print_note(f"{name}: {reason}")
                shown = reason
            waits = "no rows yet" if job.actual == "RUNNING" else job.actual.lower()
            update(f"{name}: {waits}")
            time.sleep(_POLL_SECONDS)


def _describe_failure(job: retally.Job) -> CommandFailed:
    advice = f". {job.failure.advice}" if job.failure and job.failure.advice else ""
    return CommandFailed(f"{job.name} failed: {escape_controls(job.reason or '')}{advice}")


def _print_logs(client: retally.Client, options: argparse.Namespace) -> None:
    """Print the newest lines of a log; with --follow, also each new line until Ctrl-C."""

    def show(line: Any) -> None:
        print(f"{line.time or '':23} {line.level:7} {escape_controls(line.message)}")

    with suppress(KeyboardInterrupt):
        lines = _read_logs(client, options)
        print_answer(options.output, lines, _LOG, text=show, flush=options.follow)


def _read_logs(client: retally.Client, options: argparse.Namespace) -> Iterator[Any]:
    seen = client.logs(options.name, limit=LOG_LINES_MAX if options.follow else options.limit)
    yield from seen[max(0, len(seen) - options.limit) :]
    while options.follow:
        time.sleep(_POLL_SECONDS)
        found = client.logs(options.name, limit=LOG_LINES_MAX)
        yield from find_new(seen, found)
        seen = found


def find_new(seen: list[Any], found: list[Any]) -> list[Any]:
    """Return the lines of `found` after those that were seen; both are ends of one log."""
    last = seen[-_SAME_LINES:]
    for end in range(len(found), max(0, len(last) - 1), -1):
        if last and found[end - len(last) : end] == last:
            return found[end:]
    return found


def _print(jobs: list[retally.Job], form: str) -> None:
    print_answer(form, jobs, _COLUMNS)
    for job in jobs:
        if job.pending is not None and form == "table":
            print_note(describe_pending(job))


def describe_pending(job: retally.Job) -> str:
    """Return what the pending spec of a job changes, and the next command."""
    head, found = f"{job.name}: a changed spec is pending approval", job.evolution
    if "evolution" not in job:  # a list does not have it
        return f"{head}; retally jobs show {job.name} says what it changes"
    approve = f"retally approve {job.name}"
    if found is None:
        return f"{head}; approve it with {approve}"
    changes = [
        f"{what} {', '.join(map(escape_controls, names))}"
        for what, names in (("adds", found.added), ("removes", found.dropped))
        if names
    ]
    if found.continues:
        next_step = f"the state can answer it: {approve} --state keep"
    elif found.replays:
        next_step = f"the job reads its topic again while it runs: {approve} --state replay"
    else:
        next_step = f"it needs a new state: retally stop {job.name}, and {approve} --state drop"
    return "; ".join([head, *changes, *map(escape_controls, found.reasons), next_step])


def describe_deletion(job: retally.Job, *, dropped: bool) -> Iterator[str]:
    """Yield what of a deleted job remains, and how to use it again."""
    table = "the table is kept, and the next job of this name with the same query continues it"
    table = "its table and its savepoints are gone" if dropped else table
    yield f"deleted {job.name}; {table}"
    if dropped and job.spec is not None:
        sinks = [view.sink for view in load_spec(job.spec).view_specs.values() if view.sink]
        for sink in sinks:
            topics = topics_of_sink(sink.topic)[: 2 if sink.publishers == 1 else 3]
            yield (
                f"topics {', '.join(topics)} stay, and a job with another table does not write to "
                f"them; to use them again, delete them: retally topics delete {' '.join(topics)}"
            )
