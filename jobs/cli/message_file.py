"""The message of `quarantine --message`: the bytes of a file, or of standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from jobs.cli.errors import UsageError
from schemas.limits import MESSAGE_BYTES_MAX


def read_message(name: str) -> bytes:
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
