"""retally results: prints the groups of a job and their values, now or at an epoch."""

from __future__ import annotations

import argparse

from jobs.cli.answers import Wanted
from jobs.cli.errors import UsageError
from jobs.cli.output import describe_moved, print_json, print_note, print_table
from jobs.cli.sources import open_source


def run(options: argparse.Namespace) -> None:
    listed = options.where or options.order or options.limit is not None
    if options.key is not None and listed:
        raise UsageError("--key names one group; --where, --order and --limit are for many")
    wanted = Wanted(
        options.epoch,
        options.time,
        options.key,
        tuple(options.where or ()),
        options.order,
        options.limit,
    )
    with open_source(options) as source:
        found = source.read_results(wanted)
    if options.json:
        print_json(*found.rows)
    else:
        names = [name for name, _ in found.columns]
        print_table(found.columns, ([row[name] for name in names] for row in found.rows))
    if found.moved is not None:
        print_note(describe_moved(found.moved))
    if options.key is not None and not found.rows:
        print_note(f"there is no such group at epoch {found.epoch}")
    elif not options.json:
        groups = "group" if len(found.rows) == 1 else "groups"
        kept = " that match" if options.where else ""
        print_note(f"{len(found.rows)} {groups}{kept} at epoch {found.epoch}")
