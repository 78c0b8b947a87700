"""Audit log: who requested which change of the service, when, and with which result.

    every change ──► by an operator or admin ──► trail.log ─► trail.1 ─► ... ─► trail.7, deleted
                └──► by a viewer ──► trail-viewers.log, likewise
    SQL statements, messages of topics ──► trail-reads.log, likewise
      one JSON line: when, who, from where, what, status of the response

Viewers write lines too: tickets, logins, refused requests. Their lines have files of their own, so
they never displace a line of an admin. So do reads of many results or of raw messages; their lines
name the tables or topics. Requests without valid credentials are only counted by status; otherwise
strangers could displace all other lines. Bodies are not logged: the register has the specs, and a
message may be personal data.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from heapq import merge
from itertools import islice, pairwise
from operator import attrgetter
from pathlib import Path

import msgspec

from schemas.documents.answers import AuditLogLine
from schemas.limits import AUDIT_LOG_BYTES_MAX, AUDIT_LOG_FILES_MAX
from schemas.types.moments import format_instant, now_ms
from service.access.tokens import Role
from service.log_lines import read_lines_backwards

log = logging.getLogger(__name__)

READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class _Line(AuditLogLine, frozen=True, kw_only=True):
    reads: list[str] | msgspec.UnsetType = msgspec.UNSET  # tables or topics


class AuditLog:
    """The lines of one service; thread-safe."""

    def __init__(self, path: Path) -> None:
        self._changes = Files(path)
        self._of_viewers = Files(path.with_stem(f"{path.stem}-viewers"))
        self._reads = Files(path.with_stem(f"{path.stem}-reads"))
        self._lock = threading.Lock()

    def note(
        self,
        who: str,
        role: Role,
        method: str,
        path: str,
        status: int,
        address: str = "",
        reads: Sequence[str] | None = None,
    ) -> None:
        """Append one line; if that fails, write it to the service's log instead.

        A request that only reads has in `reads` the tables or topics.
        """
        files = self._changes if role >= Role.OPERATOR else self._of_viewers
        if reads is not None:
            files = self._reads
        line = _Line(
            at=format_instant(now_ms()),
            who=who,
            from_=address,
            method=method,
            path=path,
            status=status,
            reads=msgspec.UNSET if reads is None else list(reads),
        )
        text = msgspec.json.encode(line) + b"\n"
        try:
            with self._lock:
                files.append(text)
        except OSError:
            log.exception("the audit log cannot be written: %s", text)

    def newest(self, limit: int, job: str = "") -> list[AuditLogLine]:
        """Return the newest lines, newest first; of one job if it is given."""
        both = (self._changes.backwards(), self._of_viewers.backwards())
        lines = merge(*both, key=attrgetter("at"), reverse=True)
        paths = f"/v1/jobs/{job}/", f"/v1/jobs/{job}."  # the second is that of a view
        wanted = (each for each in lines if not job or f"{each.path}/".startswith(paths))
        return list(islice(wanted, limit))


class Files:
    """A log file and its rotated predecessors; the oldest of them is deleted."""

    def __init__(self, path: Path) -> None:
        older = [path.with_suffix(f".{number}") for number in range(1, AUDIT_LOG_FILES_MAX)]
        self._newest_first = [path, *older]

    def append(self, text: bytes) -> None:
        path = self._newest_first[0]
        with suppress(FileNotFoundError):
            if path.stat().st_size >= AUDIT_LOG_BYTES_MAX:
                self.rotate()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags, 0o600), "ab") as file:
            file.write(text)

    def backwards(self) -> Iterator[AuditLogLine]:
        for path in self._newest_first:
            for text in read_lines_backwards(path):
                yield msgspec.json.decode(text, type=AuditLogLine)

    def rotate(self) -> None:
        """Rename a full file, unless another service on the directory has just done so."""
        path = self._newest_first[0]
        with path.with_suffix(".lock").open("w") as lock, suppress(FileNotFoundError):
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.stat().st_size < AUDIT_LOG_BYTES_MAX:
                return
            for newer, older in reversed(list(pairwise(self._newest_first))):
                with suppress(FileNotFoundError):
                    newer.replace(older)
