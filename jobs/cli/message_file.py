"""A message given on the command line: a file's bytes, or standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from jobs.cli.errors import UsageError
from schemas.limits import MESSAGE_BYTES_MAX


def message_of(named: str) -> bytes:
    """A file's bytes, or standard input for `-`; not more than a job would read."""
    try:
        stream = sys.stdin.buffer if named == "-" else Path(named).open("rb")  # noqa: SIM115
        with stream:
            text = stream.read(MESSAGE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"--message {named}: {error.strerror}") from None
    if len(text) > MESSAGE_BYTES_MAX:
        raise UsageError(f"--message: a message has at most {MESSAGE_BYTES_MAX} bytes")
    return text
