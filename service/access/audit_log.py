"""The trail: who has asked the service to change something, and what came of it.

    every change ──► by an operator or admin ──► trail.log ─► trail.1 ─► ... ─► trail.7, then gone
                └──► by a viewer ──► trail-viewers.log, likewise
      one JSON line: when, who, from, what, the answer's status

A viewer can make lines as well, by tickets, logins and what is refused; in files of their own they
push no line of an admin out. Requests without valid credentials are not in it, or strangers could
push all others out: they are counted by their status. Bodies are not in it either: a spec is in the
register, a message may be somebody's data.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from heapq import merge
from itertools import islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from schemas.limits import TRAIL_BYTES_MAX, TRAIL_FILES_MAX
from service.access.tokens import Role
from service.log_lines import lines_backwards
from service.moments import instant, now_ms

log = logging.getLogger(__name__)

LOOKS = frozenset({"GET", "HEAD", "OPTIONS"})


class Trail:
    def __init__(self, path: Path) -> None:
        self._changes = _Files(path)
        self._of_viewers = _Files(path.with_stem(f"{path.stem}-viewers"))
        self._lock = threading.Lock()

    def note(
        self, who: str, role: Role, method: str, path: str, status: int, address: str = ""
    ) -> None:
        """Append one line; if that fails, the service's log has it instead."""
        line = {"at": instant(now_ms()), "who": who, "from": address, "method": method}
        text = msgspec.json.encode(line | {"path": path, "status": status}) + b"\n"
        files = self._changes if role >= Role.OPERATOR else self._of_viewers
        try:
            with self._lock:
                files.append(text)
        except OSError:
            log.exception("the trail cannot be written: %s", text)

    def newest(self, limit: int) -> list[dict[str, Any]]:
        """The newest lines, the newest first."""
        both = (self._changes.backwards(), self._of_viewers.backwards())
        return list(islice(merge(*both, key=itemgetter("at"), reverse=True), limit))


class _Files:
    """Lines in a file; when it is full, it is renamed, and the oldest one removed."""

    def __init__(self, path: Path) -> None:
        older = [path.with_suffix(f".{number}") for number in range(1, TRAIL_FILES_MAX)]
        self._newest_first = [path, *older]

    def append(self, text: bytes) -> None:
        path = self._newest_first[0]
        with suppress(FileNotFoundError):
            if path.stat().st_size >= TRAIL_BYTES_MAX:
                self._turn_over()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags, 0o600), "ab") as file:
            file.write(text)

    def backwards(self) -> Iterator[dict[str, Any]]:
        for path in self._newest_first:
            for text in lines_backwards(path):
                yield msgspec.json.decode(text)

    def _turn_over(self) -> None:
        for newer, older in reversed(list(pairwise(self._newest_first))):
            with suppress(FileNotFoundError):
                newer.replace(older)
