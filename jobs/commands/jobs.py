"""retally jobs: the jobs of a running service, looked at and told what to do.

The service is called by its name, as in jobs.commands.serve: nothing of jobs imports it.
"""

from __future__ import annotations

import argparse
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from jobs.commands.errors import CommandFailed, UsageError
from jobs.commands.output import print_json, print_table, safe

SERVICE_VARIABLE, TOKEN_VARIABLE = "RETALLY_SERVICE", "RETALLY_TOKEN"
SERVICE_DEFAULT = "http://127.0.0.1:8080"
_COLUMNS = [
    ("job", False), ("state", False), ("desired", False), ("epoch", True), ("groups", True),
    ("lag", True), ("reason", False),
]  # fmt: skip


def run(options: argparse.Namespace) -> None:
    service = import_module("service.client")
    address = options.service or os.environ.get(SERVICE_VARIABLE) or SERVICE_DEFAULT
    try:
        client = service.Client(address, os.environ.get(TOKEN_VARIABLE))
    except ValueError as error:
        raise UsageError(str(error)) from None
    try:
        _act(client, options)
    except service.Refused as error:
        raise CommandFailed(safe(str(error))) from None
    except OSError as error:
        raise CommandFailed(
            f"{address} does not answer: {error}; does retally serve run?"
        ) from None
    finally:
        client.close()


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
        _show([job], options.json)


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
