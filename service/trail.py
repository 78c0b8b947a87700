"""The trail: who has asked the service to change something, and what came of it.

    every change by somebody known ──► one JSON line: when, who, from, what, the answer's status
                                              └─► trail ─► trail.1 ─► ... ─► trail.7, then gone

Requests without valid credentials are not in it, or strangers could push the others out: they are
counted by their status. Bodies are not in it either: a spec is in the register, a message may be
somebody's data.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from schemas.limits import TRAIL_BYTES_MAX, TRAIL_FILES_MAX
from service.job_log import lines_backwards
from service.jobs import instant
from service.register import now_ms

log = logging.getLogger(__name__)

LOOKS = frozenset({"GET", "HEAD", "OPTIONS"})


class Trail:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def note(self, who: str, method: str, path: str, status: int, address: str = "") -> None:
        """One line, at the end of the file; that it cannot be written is said in the log."""
        line = {"at": instant(now_ms()), "who": who, "from": address, "method": method}
        text = msgspec.json.encode(line | {"path": path, "status": status}) + b"\n"
        try:
            with self._lock:
                self._turn_over()
                descriptor = os.open(
                    self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600
                )
                with os.fdopen(descriptor, "ab") as file:
                    file.write(text)
        except OSError:
            log.exception("the trail cannot be written: %s", text)

    def newest(self, limit: int) -> list[dict[str, Any]]:
        """The newest lines, the newest first."""
        found: list[dict[str, Any]] = []
        for path in (self._path, *self._older):
            for text in lines_backwards(path):
                if len(found) == limit:
                    return found
                found.append(msgspec.json.decode(text))
        return found

    @property
    def _older(self) -> list[Path]:
        """The files before it, the newest first."""
        return [self._path.with_suffix(f".{number}") for number in range(1, TRAIL_FILES_MAX)]

    def _turn_over(self) -> None:
        try:
            full = self._path.stat().st_size >= TRAIL_BYTES_MAX
        except FileNotFoundError:
            return
        if full:
            files = [self._path, *self._older]
            for newer, older in reversed(list(pairwise(files))):
                with suppress(FileNotFoundError):
                    newer.replace(older)
