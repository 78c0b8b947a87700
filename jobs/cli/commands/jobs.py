"""retally jobs, and start, stop and the like: the jobs of a running service, looked at and told
what to do."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec

from jobs.cli.errors import CommandFailed, UsageError
from jobs.cli.output import print_json, print_table, safe, waiting
from jobs.cli.service_client import service_client

_COLUMNS = [
    ("job", False), ("state", False), ("desired", False), ("epoch", True), ("groups", True),
    ("lag", True), ("reason", False),
]  # fmt: skip
# Where a job is when what was asked for is done.
_GOALS = {
    "start": "RUNNING", "resume": "RUNNING", "restart": "RUNNING", "pause": "PAUSED",
    "stop": "STOPPED",
}  # fmt: skip


def run(options: argparse.Namespace) -> None:
    with service_client(options) as client:
        _act(client, options)


def _act(client: Any, options: argparse.Namespace) -> None:
    action, name = options.action, options.name
    if action == "list":
        _show(list(client.jobs()), options.json)
        return
    if name is None:
        raise UsageError(f"retally jobs {action} needs a job's name")
    if action == "put":
        if options.spec is None:
            raise UsageError("retally jobs put NAME needs --spec FILE")
        _show([client.put(name, Path(options.spec).read_bytes())], options.json)
    elif action == "delete":
        if options.job_data is None:
            raise UsageError("say what becomes of the job's table: --job-data keep, or drop")
        client.delete(name, drop_data=options.job_data == "drop")
    elif action == "logs":
        for line in client.logs(name, limit=options.limit):
            print(f"{line.time or '':23} {line.level:7} {safe(line.message)}")
    else:
        job = client.job(name) if action == "show" else getattr(client, action)(name)
        if options.wait and action in _GOALS:
            with waiting(f"{name} is to be {_GOALS[action]}"):
                job = client.until(name, _GOALS[action], "FAILED", seconds=options.wait)
        _show([job], options.json)
        if job.actual == "FAILED" and action in _GOALS:
            raise CommandFailed(f"{name} failed: {job.reason}")


def _show(jobs: list[Any], as_json: bool) -> None:
    if as_json:
        for job in jobs:
            print_json(msgspec.to_builtins(job))
        return
    rows = [
        [
            job.name, job.actual, job.desired, job.epoch, job.groups,
            None if job.lag is None else job.lag.records, job.reason or "",
        ]
        for job in jobs
    ]  # fmt: skip
    print_table(_COLUMNS, rows)
