"""retally quarantine: lists the messages that a job refused; sends one again, fixed or not."""

from __future__ import annotations

import argparse

from jobs.cli.errors import UsageError
from jobs.cli.message_file import read_message
from jobs.cli.output import print_json, print_note, print_table
from jobs.cli.sources import open_source

_COLUMNS = [("message", False), ("reason", False), ("path", False), ("sent again as", True)]


def run(options: argparse.Namespace) -> None:
    if options.replay is not None:
        _replay(options)
        return
    if options.message is not None or options.again:
        raise UsageError("--message and --again belong to --replay ID")
    with open_source(options) as source:
        found = source.list_quarantine(whole=options.json)
    if options.json:
        print_json(*found)
        return
    rows = [
        [each["id"], each["reason"], each["path"], (each["replayed"] or {}).get("offset")]
        for each in found
    ]
    print_table(_COLUMNS, rows)


def _replay(options: argparse.Namespace) -> None:
    fixed = None if options.message is None else read_message(options.message)
    with open_source(options) as source:
        sent = source.send_again(options.replay, fixed, again=options.again)
    if options.json:
        print_json(sent)
    else:
        place = f"offset {sent['offset']} of {sent['topic']}/{sent['partition']}"
        print_note(f"message {sent['id']} is now {place}")
