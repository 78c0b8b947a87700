"""A job's log: what its process writes, line by line, read back with time and level.

The file is written by the job itself, so that it goes on without the service. It is bounded by
copying it aside and cutting it to nothing; a line written in that very moment may be lost.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from schemas.limits import JOB_LOG_BYTES_MAX
from service.log_lines import lines_backwards

_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) (DEBUG|INFO|WARNING|ERROR) (.*)")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_REASON_CHARACTERS = 1_000


def cut(log: Path) -> None:
    """Move a log that has grown too long aside."""
    try:
        if log.stat().st_size < JOB_LOG_BYTES_MAX:
            return
    except FileNotFoundError:
        return
    shutil.copyfile(log, log.with_name("log.1"))
    log.with_name("log.1").chmod(0o600)
    with log.open("r+b") as file:
        file.truncate()


def tail(log: Path, limit: int, level: str = "DEBUG") -> list[dict[str, Any]]:
    """The newest lines of at least a level, oldest first."""
    wanted = set(_LEVELS[_LEVELS.index(level) :])
    found: list[dict[str, Any]] = []
    for text in lines_backwards(log):
        line = _structured(text)
        if line["level"] in wanted:
            found.append(line)
            if len(found) == limit:
                break
    return found[::-1]


def reason(log: Path) -> str | None:
    """Why the last process ended, in its own words: its sentence on standard error."""
    for count, text in enumerate(lines_backwards(log)):
        if count > 200:  # it is among the last words, before what a JVM may still say
            return None
        if text.startswith("retally: "):
            return text.removeprefix("retally: ")[:_REASON_CHARACTERS]
        if text.startswith("===="):  # the service's mark: where this process began
            return None
    return None


def mark(log: Path, text: str) -> None:
    """A line of the service's own, which parts one process from the next."""
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with log.open("a") as file:
        file.write(f"==== {text}\n")
    log.chmod(0o600)


def _structured(text: str) -> dict[str, Any]:
    found = _LINE.fullmatch(text)
    if found is not None:
        moment, ms, level, message = found.groups()
        return {"time": f"{moment}.{ms}", "level": level, "message": message}
    level = "ERROR" if text.startswith("retally: ") else "INFO"
    return {"time": None, "level": level, "message": text}
