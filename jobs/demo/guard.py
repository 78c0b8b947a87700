"""Guard: kills the processes that a killed demo has left.

    demo ──pipe──► guard     the pipe ends with the demo ──► kill every process in the demo's data

A job survives the service that started it, but the jobs of a demo must not survive the demo. On
Linux the guard finds processes by the demo's directory in their arguments.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SCANS, _PAUSE_SECONDS = 5, 0.5  # a later scan finds a job that was starting at the first


@contextmanager
def guard(data: Path) -> Iterator[None]:
    """Guard the block; then kill what the demo could not stop: a job that was still starting."""
    command = [sys.executable, "-m", "jobs.demo.guard", str(data)]
    # In a session of its own, so that Ctrl-C does not end it.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        process.kill()
        process.wait()
        kill_processes(str(data))


def kill_processes(data: str) -> None:
    """Kill our processes with `data` in their arguments."""
    for process in Path("/proc").glob("[0-9]*"):
        pid = int(process.name)
        with suppress(OSError):
            arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            inside = any(each == data or each.startswith(data + "/") for each in arguments)
            ours = any(each.startswith("jobs.") for each in arguments)
            if inside and ours and pid != os.getpid():
                kill = os.killpg if os.getpgid(pid) == pid else os.kill  # with JVM and workers
                kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.stdin.buffer.read()  # until the demo has ended
    for _ in range(_SCANS):
        kill_processes(sys.argv[1])
        time.sleep(_PAUSE_SECONDS)
