"""A job's process: started apart from the service, recognised again, told to end.

    start ──► a session of its own, its output in the job's log
    service gone and back ──► pid + the moment of its birth, or the holder of the writer's lock

A pid alone is not a process: numbers come again. So its birth is remembered beside it. The lock is
only ever looked at, never taken: whoever takes it for a moment may be in the way of a job that
starts in that moment.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from schemas.limits import JOB_NICENESS

_PROC = Path("/proc")
_STAT_BIRTH = 19  # field 22 of /proc/PID/stat, counted after the command's closing parenthesis
_ZOMBIE = "Z"


def start(arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """`retally ARGUMENTS` in a session of its own, so that it outlives the service."""
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(
        log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "jobs.cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
            close_fds=True,
        )
    finally:
        os.close(descriptor)
    _give_way(process.pid)
    return process


def _give_way(pid: int) -> None:
    """An epoch may have all of the processors that nobody asks for; an answer should not wait for
    one. The niceness of a process counts within its session only, so it is the session's."""
    with suppress(OSError):  # a kernel without groups by session
        (_PROC / str(pid) / "autogroup").write_text(str(JOB_NICENESS))


def birth(pid: int) -> str | None:
    """When a process began, as the kernel counts; None where it is not there (any more)."""
    if not _PROC.is_dir():
        return _birth_by_ps(pid)
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = text[text.rindex(")") + 2 :].split()
    return None if state == _ZOMBIE else fields[_STAT_BIRTH - 1]


def _birth_by_ps(pid: int) -> str | None:
    told = subprocess.run(
        ["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, born = told.stdout.strip().partition(" ")
    return None if not state or state.startswith(_ZOMBIE) else born.strip()


def alive(pid: int, born: str | None) -> bool:
    now = birth(pid)
    return now is not None and (born is None or now == born)


def writer(lock: Path) -> int | None:
    """The process that holds a job's writer lock."""
    try:
        status = lock.stat()
        note = json.loads(lock.read_bytes() or b"{}")
        pid = int(note["pid"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    holders = _flock_holders(status.st_ino)
    if holders is not None and pid not in holders:
        return None
    return pid if alive(pid, None) else None


def _flock_holders(inode: int) -> set[int] | None:
    """The processes with a lock on a file, as Linux lists them; None elsewhere."""
    try:
        lines = (_PROC / "locks").read_text().splitlines()
    except OSError:
        return None
    held = set()
    for line in lines:  # 1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
            held.add(int(fields[4]))
    return held


def runs_a_job(pid: int) -> bool:
    """Whether a process is a `retally run`: a rewind holds the same lock, for a moment."""
    try:
        arguments = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return not _PROC.is_dir()
    return b"run" in arguments


def ask_to_end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def kill(pid: int) -> None:
    """The process and, where it leads a session of its own, what it has started."""
    with suppress(ProcessLookupError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
