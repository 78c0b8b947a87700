"""The failure of a job's last run, in a file of its directory.

The service reads it to decide about the next start. An exit code would not do: only the parent of a
process gets it, and a service may have found the job running.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

import msgspec
import msgspec.yaml

from schemas.limits import FAILURE_BYTES_MAX


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    code: str  # for programs; stable
    reason: str
    retryable: bool  # whether another start may succeed, for example when a broker is back
    pid: int
    failed_at: int  # milliseconds since 1970
    stack: str = ""  # of the exception, the end of a long one


_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


class FailureKind(msgspec.Struct, frozen=True):
    """A code: whether another start may succeed, what it means, and what a person does.

    The texts are Markdown, with links to documents beside docs/troubleshooting.md.
    """

    again: bool
    meaning: str
    advice: str

    @property
    def text(self) -> str:
        """Meaning and advice as sentences without Markdown."""
        sentence = f"{self.meaning[0].upper()}{self.meaning[1:]}. {self.advice}"
        return _LINK.sub(r"\1", sentence).replace("`", "")


@cache
def failure_kinds() -> dict[str, FailureKind]:
    """Return the catalogue of failures by code."""
    text = Path(__file__).with_name("failures.yaml").read_bytes()
    return msgspec.yaml.decode(text, type=dict[str, FailureKind])


def forget_failure(path: Path) -> None:
    """Delete the previous run's failure, and reserve space, so that a full disk can be reported."""
    fresh = path.with_suffix(".new")
    with suppress(FileNotFoundError):
        path.replace(fresh)
    with _open_fresh(fresh) as file:
        os.posix_fallocate(file.fileno(), 0, FAILURE_BYTES_MAX)


def write_failure(path: Path, failure: Failure) -> None:
    """Write the file atomically. Only the owner may read it: the reason may quote the source."""
    fresh = path.with_suffix(".new")
    with _open_fresh(fresh) as file:
        file.write(msgspec.json.encode(failure))
        file.truncate()
    fresh.replace(path)


def _open_fresh(fresh: Path) -> IO[bytes]:
    """Open a file for writing without truncating it, which keeps its reserved space."""
    return os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600), "wb")
