"""retally jobs, start, stop and so on: shows and controls the jobs of a running service."""

from __future__ import annotations

import argparse

import retally
from jobs.cli.errors import CommandFailed, UsageError
from jobs.cli.output import escape_controls, print_json, print_table, show_waiting
from jobs.cli.service import name_places, service_client

_COLUMNS = [
    ("job", False),
    ("state", False),
    ("desired", False),
    ("epoch", True),
    ("groups", True),
    ("lag", True),
    ("reason", False),
]
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
        _print(client.jobs(), options.json)
        return
    if name is None:
        raise UsageError(f"write the job's name: retally jobs {action} NAME")
    if action == "put":
        if options.spec is None:
            raise UsageError("write the spec's file: retally jobs put NAME --spec FILE")
        with name_places(options.spec):
            job = client.put(options.spec, name, replace=options.replace)
        _print([job], options.json)
    elif action == "delete":
        if options.job_data is None:
            raise UsageError("choose --job-data keep, or --job-data drop for the job's table")
        client.delete(name, drop_data=options.job_data == "drop")
    elif action == "logs":
        for line in client.logs(name, limit=options.limit):
            if options.json:
                print_json(line)
                continue
            print(f"{line.time or '':23} {line.level:7} {escape_controls(line.message)}")
    else:
        job = client.job(name) if action == "show" else getattr(client, action)(name)
        if options.wait and action in _GOALS:
            with show_waiting(f"waiting until {name} is {_GOALS[action][0]}"):
                try:
                    job = client.until(name, *_GOALS[action], "FAILED", seconds=options.wait)
                except TimeoutError as error:
                    raise CommandFailed(f"{error}; see retally logs {name}") from None
        _print([job], options.json)
        if job.actual == "FAILED" and action in _GOALS:
            raise CommandFailed(f"{name} failed: {job.reason}")


def _print(jobs: list[retally.Job], as_json: bool) -> None:
    if as_json:
        print_json(*jobs)
        return
    rows = [
        [
            job.name,
            job.actual,
            job.desired,
            job.epoch,
            job.groups,
            None if job.lag is None else job.lag.records,
            job.reason or "",
        ]
        for job in jobs
    ]
    print_table(_COLUMNS, rows)
