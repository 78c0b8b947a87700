"""retally approve, operations and audit-log: what only a service knows."""

from __future__ import annotations

import argparse
import math

import retally
from jobs.cli.commands.jobs import await_epoch
from jobs.cli.output import Columns, print_answer, print_note
from jobs.cli.service import Service, State, service_client
from schemas.types.json_types import JsonObject

_OPERATIONS: Columns = {
    "began": lambda operation: operation.began_at or operation.created_at,
    "kind": "kind",
    "state": "state",
    "by": "asked_by",
    "reason": lambda operation: operation.reason or "",
}
_REQUESTS: Columns = {
    "at": "at",
    "who": "who",
    "request": lambda line: f"{line.method} {line.path}",
    "status": "status",
}


def approve(options: argparse.Namespace) -> None:
    """Approve the pending spec of a job, which drops or keeps its state."""
    name = options.name
    with service_client(options) as client:
        done, runs = approve_pending(client, options, name, options.state)
    at = f" at epoch {done['epoch']}" if done.get("epoch") is not None else ""
    after = " and runs" if runs else f"; start it: retally start {name}"
    note = f"{name} has the approved spec{at}{after}"
    print_answer(options.output, [done], text=lambda _: print_note(note))


def approve_pending(
    client: retally.Client, options: argparse.Namespace, name: str, state: State | None
) -> tuple[JsonObject, bool]:
    """Approve a pending spec; return the answer, and whether the job is to run under it.

    People read what becomes of a running job, and wait until it runs again; programs only with
    --wait.
    """
    noted = options.output == "table"
    job = client.job(name)
    runs = job.desired == "RUNNING"
    if runs and noted and job.evolution is not None:
        again = state == "replay" or not job.evolution.continues
        reads = " continues with its old query while its topic is read again; then it"
        print_note(
            f"{name}{reads if again else ''} stops, commits one epoch under the new query, and "
            "starts again"
        )
    done = Service(client, name).approve(state)
    if runs and (noted or options.wait is not None):
        seconds = math.inf if options.wait is None else options.wait
        await_epoch(client, name, done.get("epoch") or 0, seconds)
    return done, runs


def operations(options: argparse.Namespace) -> None:
    """Print the operations of a job, newest first."""
    with service_client(options) as client:
        found = client.operations(options.name, limit=options.limit)
    print_answer(options.output, found, _OPERATIONS)


def audit_log(options: argparse.Namespace) -> None:
    """Print who requested which change of a service, newest first."""
    with service_client(options) as client:
        found = client.audit_log(limit=options.limit)
    print_answer(options.output, found, _REQUESTS)
