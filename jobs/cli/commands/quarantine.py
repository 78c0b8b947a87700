"""retally quarantine: lists the messages that a job refused; sends some again, or one fixed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from jobs.cli.errors import CommandFailed, UsageError
from jobs.cli.output import Columns, print_answer, print_note
from jobs.cli.sources import open_source
from schemas.limits import MESSAGE_BYTES_MAX
from schemas.types.json_types import JsonObject

_COLUMNS: Columns = {
    "message": "id",
    "source": "source",
    "reason": "reason",
    "path": "path",
    "sent again as": lambda message: (message["replayed"] or {}).get("offset"),
}


def run(options: argparse.Namespace) -> None:
    if options.replay is not None:
        _replay(options)
        return
    if options.message is not None or options.again:
        raise UsageError("--message and --again belong to --replay ID")
    with open_source(options) as source:
        found = source.list_quarantine(whole=options.output == "json")
    of_several = any("source" in each for each in found)
    columns = {name: c for name, c in _COLUMNS.items() if name != "source" or of_several}
    print_answer(options.output, found, columns)


def _replay(options: argparse.Namespace) -> None:
    if len(options.replay) > 1:
        _replay_all(options)
        return
    fixed = None if options.message is None else _read_message(options.message)
    with open_source(options) as source:
        sent = source.send_again(options.replay[0], fixed, again=options.again)
    print_answer(options.output, [sent], text=_print_sent)


def _replay_all(options: argparse.Namespace) -> None:
    if options.message is not None:
        raise UsageError("--message corrects one message; give --replay once")
    with open_source(options) as source:
        done = source.send_all_again(options.replay, again=options.again)
    print_answer(options.output, [done], text=lambda done: [*map(_print_sent, done["sent"])])
    if done["refused"]:
        reasons = "\n  ".join(
            f"{identity}: {reason}" for identity, reason in done["refused"].items()
        )
        total = len(done["sent"]) + len(done["refused"])
        raise CommandFailed(
            f"{len(done['refused'])} of {total} messages were not sent:\n  {reasons}"
        )


def _print_sent(sent: JsonObject) -> None:
    position = f"offset {sent['offset']} of {sent['topic']}/{sent['partition']}"
    print_note(f"message {sent['id']} is now {position}")


def _read_message(name: str) -> bytes:
    """Return the bytes of a file (`-`: standard input), at most as many as a job reads."""
    try:
        stream = sys.stdin.buffer if name == "-" else Path(name).open("rb")  # noqa: SIM115
        with stream:
            text = stream.read(MESSAGE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"--message {name}: {error.strerror}") from None
    if len(text) > MESSAGE_BYTES_MAX:
        raise UsageError(f"--message {name}: a message has at most {MESSAGE_BYTES_MAX} bytes")
    return text
