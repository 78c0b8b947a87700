"""retally approve, operations and audit-log: what only a service knows."""

from __future__ import annotations

import argparse

from jobs.cli.output import print_json, print_note, print_table
from jobs.cli.service import Service, service_client

_OPERATIONS = [(name, False) for name in ("began", "kind", "state", "by", "reason")]
_REQUESTS = [("at", False), ("who", False), ("request", False), ("status", True)]


def approve(options: argparse.Namespace) -> None:
    """Approve the pending spec of a job, which drops or keeps its state."""
    with service_client(options) as client:
        done = Service(client, options.name).approve(options.state)
        runs = client.job(options.name).desired == "RUNNING"
    if options.json:
        print_json(done)
        return
    at = f" at epoch {done['epoch']}" if done.get("epoch") is not None else ""
    name = options.name
    after = "the service starts it again: retally jobs show" if runs else "start it: retally start"
    print_note(f"{name} has the approved spec{at}; {after} {name}")


def operations(options: argparse.Namespace) -> None:
    """Print the operations of a job, newest first."""
    with service_client(options) as client:
        found = client.operations(options.name, limit=options.limit)
    if options.json:
        print_json(*found)
        return
    rows = [
        [each.began_at or each.created_at, each.kind, each.state, each.asked_by, each.reason or ""]
        for each in found
    ]
    print_table(_OPERATIONS, rows)


def audit_log(options: argparse.Namespace) -> None:
    """Print who requested which change of a service, newest first."""
    with service_client(options) as client:
        found = client.audit_log(limit=options.limit)
    if options.json:
        print_json(*found)
        return
    rows = [[each.at, each.who, f"{each.method} {each.path}", each.status] for each in found]
    print_table(_REQUESTS, rows)
