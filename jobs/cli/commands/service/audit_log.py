"""retally audit-log: prints who requested which change of a service, newest first."""

from __future__ import annotations

import argparse

import msgspec

from jobs.cli.output import print_json, print_table
from jobs.cli.service import service_client

_COLUMNS = [("at", False), ("who", False), ("request", False), ("status", True)]


def run(options: argparse.Namespace) -> None:
    with service_client(options) as client:
        found = client.audit_log(limit=options.limit)
    if options.json:
        print_json(*(msgspec.to_builtins(each) for each in found))
        return
    rows = [[each.at, each.who, f"{each.method} {each.path}", each.status] for each in found]
    print_table(_COLUMNS, rows)
