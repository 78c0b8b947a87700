"""A job's process: start it, recognize it after a restart of the service, end it.

    start ──► its own session, its output in the job's log
    service restarted ──► find it by pid and time of birth, or by the holder of the writer lock

Pids are reused, so the time of birth is stored beside the pid. The service only inspects the lock
and never takes it: it could block a job that starts in that moment.
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
_GROUPS = Path("/sys/fs/cgroup")
_MEMORY_EVENTS = ("memory.events", "memory/memory.oom_control")  # of version 2 and of version 1
_STAT_BIRTH = 19  # field 22 of /proc/PID/stat, counted after the command's closing parenthesis
_ZOMBIE = "Z"


def start(arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start `retally ARGUMENTS` in its own session, so that it outlives the service."""
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
    _lower_priority(process.pid)
    return process


def _lower_priority(pid: int) -> None:
    """Give a job the processors that are idle, so that responses of the service come first.

    The niceness of a process counts only within its session, so set that of the session.
    """
    with suppress(OSError):  # a kernel without autogroups
        (_PROC / str(pid) / "autogroup").write_text(str(JOB_NICENESS))


def read_birth(pid: int) -> str | None:
    """Return when a process started, in units of the kernel; None if it does not exist."""
    if not _PROC.is_dir():
        return _read_birth_by_ps(pid)
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = text[text.rindex(")") + 2 :].split()
    return None if state == _ZOMBIE else fields[_STAT_BIRTH - 1]


def _read_birth_by_ps(pid: int) -> str | None:
    done = subprocess.run(
        ["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, born = done.stdout.strip().partition(" ")
    return None if not state or state.startswith(_ZOMBIE) else born.strip()


def is_alive(pid: int, born: str | None) -> bool:
    """Return whether the process exists and was born then."""
    found = read_birth(pid)
    return found is not None and (born is None or found == born)


def find_writer(lock: Path) -> int | None:
    """Return the process that holds a job's writer lock."""
    try:
        status = lock.stat()
        note = json.loads(lock.read_bytes() or b"{}")
        pid = int(note["pid"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    holders = _list_flock_holders(status.st_ino)
    if holders is not None and pid not in holders:
        return None
    return pid if is_alive(pid, None) else None


def _list_flock_holders(inode: int) -> set[int] | None:
    """Return the processes with a lock on a file; None on other systems than Linux."""
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


def is_job(pid: int) -> bool:
    """Return whether a process is `retally run`; a rewind holds the same lock briefly."""
    try:
        arguments = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return not _PROC.is_dir()
    return b"run" in arguments


def count_memory_kills(groups: Path = _GROUPS) -> int:
    """Return how many processes of this container the kernel has killed for want of memory."""
    for name in _MEMORY_EVENTS:
        try:
            lines = (groups / name).read_text().splitlines()
        except OSError:
            continue
        found = [int(line.split()[1]) for line in lines if line.startswith("oom_kill ")]
        if found:
            return found[0]
    return 0


def terminate(pid: int) -> None:
    """Ask a process to end: it commits its epoch first."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def kill(pid: int) -> None:
    """Kill a process and, if it leads a process group, its children."""
    with suppress(ProcessLookupError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
