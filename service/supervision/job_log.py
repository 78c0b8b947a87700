"""A job's log: the output of its process, read back with time and level.

The job writes the file itself, so that it works without the service. The service copies a large
file aside and truncates it; a line written in that moment may be lost.
"""

from __future__ import annotations

import re
import shutil
from datetime import datetime
from pathlib import Path
from typing import cast, get_args

from schemas.documents.answers import Level, LogLine
from schemas.limits import JOB_LOG_BYTES_MAX
from service.log_lines import read_lines_backwards

_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) (DEBUG|INFO|WARNING|ERROR) (.*)")
_LEVELS = get_args(Level)
_REASON_CHARACTERS = 1_000
_MARK = "==== "  # the service's line before those of a process


def rotate(log: Path) -> None:
    """Copy a log that is too large to log.1, and truncate it."""
    try:
        if log.stat().st_size < JOB_LOG_BYTES_MAX:
            return
    except FileNotFoundError:
        return
    shutil.copyfile(log, log.with_name("log.1"))
    log.with_name("log.1").chmod(0o600)
    with log.open("r+b") as file:
        file.truncate()


def read_tail(log: Path, limit: int, level: Level = "DEBUG") -> list[LogLine]:
    """Return the newest lines with at least a level, oldest first."""
    wanted = set(_LEVELS[_LEVELS.index(level) :])
    found: list[LogLine] = []
    for text in read_lines_backwards(log):
        line = _parse_line(text)
        if line.level in wanted:
            found.append(line)
            if len(found) == limit:
                break
    return _fill_times(found[::-1])


def _fill_times(lines: list[LogLine]) -> list[LogLine]:
    """Give a line without a time, as of the JVM, that of the line before, or else after it."""
    known = next((line.time for line in lines if line.time is not None), None)
    filled = []
    for line in lines:
        known = line.time or known
        filled.append(LogLine(known, line.level, line.message))
    return filled


def read_reason(log: Path) -> str | None:
    """Return the error that the last process printed before its end."""
    for count, text in enumerate(read_lines_backwards(log)):
        if count > 200:  # the process prints it last, but the JVM may add some lines
            return None
        if text.startswith("retally: "):
            return text.removeprefix("retally: ")[:_REASON_CHARACTERS]
        if _MARK in text:  # the start of this process
            return None
    return None


def read_problem(log: Path, spec: Path) -> str | None:
    """Return the last problem of its spec that the last process printed."""
    for text in read_lines_backwards(log):
        if text.startswith(f"{spec}:"):  # FILE:LINE:COL: key: reason; lines of the file follow
            return ("spec" + text.removeprefix(str(spec)))[:_REASON_CHARACTERS]
        if _MARK in text:
            return None
    return None


def read_last_run(log: Path, limit: int) -> str:
    """Return the last lines of the last process."""
    found: list[str] = []
    for text in read_lines_backwards(log):
        if _MARK in text or len(found) == limit:
            break
        found.append(text)
    return "\n".join(found[::-1])


def write_mark(log: Path, text: str) -> None:
    """Write a line that separates the output of two processes."""
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with log.open("a") as file:
        moment = datetime.now()
        stamp = f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1_000:03}"
        file.write(f"{stamp} INFO {_MARK}{text}\n")
    log.chmod(0o600)


def _parse_line(text: str) -> LogLine:
    found = _LINE.fullmatch(text)
    if found is not None:
        moment, ms, level, message = found.groups()
        return LogLine(f"{moment}.{ms}", cast(Level, level), message)
    return LogLine(None, "ERROR" if text.startswith("retally: ") else "INFO", text)
