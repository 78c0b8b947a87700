"""retally quarantine: lists the messages that a job refused; sends some again, or one fixed."""

from __future__ import annotations

import argparse

from jobs.cli.answers import Document
from jobs.cli.errors import CommandFailed, UsageError
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
    if len(options.replay) > 1:
        _replay_all(options)
        return
    fixed = None if options.message is None else read_message(options.message)
    with open_source(options) as source:
        sent = source.send_again(options.replay[0], fixed, again=options.again)
    if options.json:
        print_json(sent)
    else:
        _print_sent(sent)


def _replay_all(options: argparse.Namespace) -> None:
    if options.message is not None:
        raise UsageError("--message corrects one message; give --replay once")
    with open_source(options) as source:
        done = source.send_all_again(options.replay, again=options.again)
    if options.json:
        print_json(done)
    else:
        for sent in done["sent"]:
            _print_sent(sent)
    if done["refused"]:
        reasons = "\n  ".join(
            f"{identity}: {reason}" for identity, reason in done["refused"].items()
        )
        total = len(done["sent"]) + len(done["refused"])
        raise CommandFailed(
            f"{len(done['refused'])} of {total} messages were not sent:\n  {reasons}"
        )


def _print_sent(sent: Document) -> None:
    position = f"offset {sent['offset']} of {sent['topic']}/{sent['partition']}"
    print_note(f"message {sent['id']} is now {position}")
