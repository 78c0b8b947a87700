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
from contextlib import suppress
from pathlib import Path

_SCANS, _PAUSE_SECONDS = 5, 0.5  # a later scan finds a job that was starting at the first


class Guard:
    """The guard's process, from `start` to `stop`."""

    def __init__(self, data: str, process: subprocess.Popen[bytes]) -> None:
        self._data = data
        self._process = process

    @classmethod
    def start(cls, data: Path) -> Guard:
        """Start the process."""
        command = [sys.executable, "-m", "jobs.demo.guard", str(data)]
        # In a session of its own, so that Ctrl-C does not end it.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        return cls(str(data), process)

    def stop(self) -> None:
        """End the guard, and kill what the demo could not stop: a job that was still starting."""
        self._process.kill()
        self._process.wait()
        kill_processes(self._data)


def main(data: str) -> None:
    """Wait until the pipe ends, then kill."""
    sys.stdin.buffer.read()
    for _ in range(_SCANS):
        kill_processes(data)
        time.sleep(_PAUSE_SECONDS)


def kill_processes(data: str) -> None:
    """Kill our processes with `data` in their arguments."""
    for pid in find_processes(data):
        with suppress(OSError):
            if os.getpgid(pid) == pid:  # with its JVM and workers
                os.killpg(pid, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)


def find_processes(data: str) -> list[int]:
    """Return our processes with `data` in their arguments."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            inside = any(each == data or each.startswith(data + "/") for each in arguments)
            ours = any(each.startswith("jobs.") for each in arguments)
            if inside and ours and int(process.name) != os.getpid():
                found.append(int(process.name))
    return found


if __name__ == "__main__":
    main(sys.argv[1])
