"""retally operations: prints the operations of a job, newest first."""

from __future__ import annotations

import argparse

import msgspec

from jobs.cli.output import print_json, print_table
from jobs.cli.service import service_client

_COLUMNS = [("began", False), ("kind", False), ("state", False), ("by", False), ("reason", False)]


def run(options: argparse.Namespace) -> None:
    with service_client(options) as client:
        found = client.operations(options.name, limit=options.limit)
    if options.json:
        print_json(*(msgspec.to_builtins(each) for each in found))
        return
    rows = [
        [each.began_at or each.created_at, each.kind, each.state, each.asked_by, each.reason or ""]
        for each in found
    ]
    print_table(_COLUMNS, rows)
